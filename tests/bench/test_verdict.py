"""What is said about a machine."""

from filbert.bench.verdict import about_formats, about_side


def test_formats_that_gain_enough_are_named():
    (said,) = about_formats({"float32": 200.0, "bf16": 430.0, "int8": 700.0})
    assert said == (
        "Bare matrix products reach float32 200, bf16 430, int8 700 GFLOP/s here: this machine is "
        "good at bf16 (2.1 times float32) and int8 (3.5 times float32)."
    )


def test_a_machine_without_fast_formats_is_told_to_stay_with_float32():
    (said,) = about_formats({"float32": 100.0, "bf16": 20.0})
    assert said.endswith("nothing is faster than float32 by much, so stay with it.")


def test_the_best_side_stands_beside_what_is_possible_and_the_best_peer():
    speeds = {"filbert-float32": 90.0, "filbert-bf16": 215.0, "onnxruntime-int8": 180.0}
    assert about_side(speeds, {"bf16": 430.0}) == [
        "The best of filbert is filbert-bf16 with 215 useful GFLOP/s of 430 possible (50%); the "
        "best of the others is onnxruntime-int8 with 180."
    ]
    assert about_side({"onnxruntime-int8": 1.0}, {}) == []
