"""The peer of pretrain_mlm.py: transformers' Trainer, as transformers' own run_mlm.py sets it up.

Float32, blocks of `group_texts`, DataCollatorForLanguageModeling at 15 %, the Trainer's AdamW,
linear schedule and clipping. What differs: a callback looks at the clock, lets the judge see the
model now and then, and stops at the end of the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pretrain_data import bert_tokenizer, grouped, read_lines
from pretrain_judge import judge, judge_folder
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

# The first steps of a process are slow (memory, threads): the probe does not count them.
WARM_STEPS = 2
PROBE_SHARE, PROBE_SECONDS = 0.1, 20.0

Metrics = dict[str, float]


class Clock(TrainerCallback):
    """Stops at the end of a budget of training seconds; looking at the model is not counted.

    Attributes:
        steps: optimiser steps made.
        seconds: of training.
        timed_steps, timed_seconds: the same without the first `WARM_STEPS` steps.
        curve: [seconds, tokens, what the look gave].
    """

    def __init__(
        self,
        budget: float,
        tokens_a_step: int,
        every: float = float("inf"),
        look: Callable[[Any], Metrics] | None = None,
    ) -> None:
        self.budget, self.tokens_a_step, self.every, self.look = budget, tokens_a_step, every, look
        self.steps, self.seconds, self.next_look = 0, 0.0, every
        self.timed_steps, self.timed_seconds = 0, 0.0
        self.curve: list[tuple[float, int, Metrics]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.since = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
        now = time.perf_counter()
        passed = now - self.since
        self.steps += 1
        self.seconds += passed
        if self.steps > WARM_STEPS:
            self.timed_steps += 1
            self.timed_seconds += passed
        is_over = self.seconds >= self.budget and self.timed_steps > 0
        if is_over:
            control.should_training_stop = True
        elif self.look is not None and self.seconds >= self.next_look:
            self.next_look += self.every
            tokens = self.steps * self.tokens_a_step
            self.curve.append((self.seconds, tokens, self.look(model)))
            print(f"  {self.seconds:6.0f} s  {self.curve[-1][2]}", flush=True)
        # The judge's time lies before this line, so it is nobody's.
        self.since = time.perf_counter()


def train_peer(request: dict[str, Any], sets: dict[str, Any]) -> dict[str, Any]:
    """Train for `request["seconds"]` and be judged.

    Args:
        request: as pretrain_mlm.py's `request_of` makes it.
        sets: the held-out sets; the curve is judged on part of the first.
    """
    began = time.perf_counter()
    tokenizer = bert_tokenizer(Path(request["tokenizer"]))
    length, shape = request["max_length"], request["shape"]
    rows = grouped(tokenizer, read_lines(Path(request["train"])), length)
    special = set(tokenizer.all_special_ids)
    dataset = [
        {
            "input_ids": block,
            "attention_mask": [1] * length,
            "special_tokens_mask": [int(token in special) for token in block],
        }
        for block in rows.tolist()
    ]
    tokenise_seconds = time.perf_counter() - began
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=max(512, length),
        # As on the other side: one pass over little text cannot be learnt by heart.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **shape,
    )
    tokens_a_step = request["batch_size"] * length

    def run(max_steps: int, clock: Clock) -> Any:
        set_seed(request["seed"])
        trainer = Trainer(
            model=BertForMaskedLM(config),
            args=TrainingArguments(
                output_dir=request["out"],
                per_device_train_batch_size=request["batch_size"],
                learning_rate=request["lr"],
                max_steps=max_steps,
                warmup_steps=request["warmup"],
                weight_decay=request["weight_decay"],
                lr_scheduler_type="linear",
                logging_strategy="no",
                save_strategy="no",
                report_to=[],
                seed=request["seed"],
                use_cpu=True,
                dataloader_pin_memory=False,
                disable_tqdm=True,
            ),
            train_dataset=dataset,
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
            callbacks=[clock],
        )
        trainer.train()
        return trainer.model

    budget = request["seconds"]
    probe = Clock(min(PROBE_SECONDS, PROBE_SHARE * budget), tokens_a_step)
    run(10**6, probe)
    planned = max(1, round(budget * probe.timed_steps / probe.timed_seconds))
    some = next(iter(sets.values())).first(request["curve_blocks"])
    clock = Clock(
        budget,
        tokens_a_step,
        request["look_every"],
        lambda model: judge(model.state_dict(), config.to_dict(), some),
    )
    model = run(planned, clock)
    folder = Path(request["out"]) / "model"
    model.save_pretrained(folder)
    tokens = clock.steps * tokens_a_step
    judged = judge_folder(folder, sets)
    final = judge(model.state_dict(), config.to_dict(), some)
    clock.curve.append((clock.seconds, tokens, final))
    return {
        "tokens": tokens,
        "training_seconds": clock.seconds,
        "tokens_per_second": tokens / clock.seconds,
        "steps": clock.steps,
        "planned_steps": planned,
        "tokenise_seconds": tokenise_seconds,
        "precision": "float32",
        "threads": torch.get_num_threads(),
        "parameters": model.num_parameters(),
        "judged": judged,
        "curve": clock.curve,
    }
