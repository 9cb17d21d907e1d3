"""Student's t: how wide an interval is that a few values tell of their mean."""


def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t: a 95 % interval is so many standard errors to either side."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96 + 2.4 / degrees


_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
