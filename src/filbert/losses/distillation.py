"""What a student is compared with its teacher by: each the SUM of its rows' losses, float32.

K rows, C classes, T tokens, S sequences, H hidden size.

The loss of a row is a mean over its width, so that losses of models of different widths are alike;
the caller divides by the number of rows of the whole batch. The teacher's tensors carry no
gradient. What compares tokens with tokens is in losses/relations.py.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def soft_targets(student_KC: Tensor, teacher_KC: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), summed over the rows.

    The square keeps the gradient as large as that of the labels themselves whatever T is.

    Args:
        student_KC: logits, in any float type.
        teacher_KC: likewise.
        temperature: T, above zero; the higher, the more the unlikely classes count.

    Source: Hinton et al. 2015, section 2.
    """
    student = F.log_softmax(student_KC.float() / temperature, -1)
    teacher = F.log_softmax(teacher_KC.float() / temperature, -1)
    return F.kl_div(student, teacher, reduction="sum", log_target=True) * temperature**2


def soft_binary_targets(student_KC: Tensor, teacher_KC: Tensor, temperature: float) -> Tensor:
    """As `soft_targets` for classes that do not exclude each other: the mean over C yes-or-no's."""
    student, teacher = student_KC.float() / temperature, teacher_KC.float() / temperature
    yes = teacher.sigmoid() * (F.logsigmoid(teacher) - F.logsigmoid(student))
    no = (-teacher).sigmoid() * (F.logsigmoid(-teacher) - F.logsigmoid(-student))
    return (yes + no).mean(-1).sum() * temperature**2


def cosine_distance(student_TH: Tensor, teacher_TH: Tensor) -> Tensor:
    """1 - the cosine of the two vectors, summed over the rows.

    Source: Sanh et al. 2019, section 3.
    """
    return (1.0 - F.cosine_similarity(student_TH.float(), teacher_TH.float(), dim=-1)).sum()


def squared_error(student_TH: Tensor, teacher_TH: Tensor) -> Tensor:
    """The mean squared difference of the two vectors, summed over the rows.

    Source: Jiao et al. 2020, equations 8 and 9.
    """
    return (student_TH.float() - teacher_TH.float()).square().mean(-1).sum()


def patient_distance(student_SH: Tensor, teacher_SH: Tensor) -> Tensor:
    """`squared_error` of the two vectors, each first scaled to length 1.

    Source: Sun et al. 2019, equation 7. A mean over the width as in their code, which their weights
    (10 to 1,000) are made for; the paper's formula has the sum.
    """
    return squared_error(
        F.normalize(student_SH.float(), dim=-1), F.normalize(teacher_SH.float(), dim=-1)
    )
