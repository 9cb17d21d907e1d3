"""Who a rank is, by the variables of its launcher."""

import pytest

from r2ccl_core.control.launchers import launched
from r2ccl_core.errors import UsageError

MASTER = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"R2CC_RANK": "1", "R2CC_SIZE": "4", "R2CC_ROOT": "a:1", "RANK": "7", "WORLD_SIZE": "8"}, (1, 4, "a:1")),
        ({"RANK": "3", "WORLD_SIZE": "4", **MASTER}, (3, 4, "node1:29500")),
        ({"RANK": "3", "WORLD_SIZE": "4", **MASTER, "TORCHELASTIC_USE_AGENT_STORE": "True"}, (3, 4, "node1:29501")),
        ({"RANK": "3", "WORLD_SIZE": "4", **MASTER, "TORCHELASTIC_USE_AGENT_STORE": "False"}, (3, 4, "node1:29500")),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "R2CC_ROOT": "a:1", **MASTER}, (0, 2, "a:1")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "6", **MASTER}, (0, 2, "node1:29500")),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", **MASTER}, (5, 6, "node1:29500")),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, None)),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "fd00::1", "MASTER_PORT": "7"}, (1, 2, "[fd00::1]:7")),
    ],
)
def test_the_first_launcher_that_says_anything_counts(
    environ: dict[str, str], expected: tuple[int, int, str | None]
) -> None:
    assert launched(environ) == expected


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "no launcher says which rank this is; start it by torchrun or mpirun, or set one of R2CC_RANK/R2CC_SIZE"),
        ({"RANK": "0"}, "^RANK is set and WORLD_SIZE is not: set both"),
        ({"R2CC_RANK": "0"}, "^R2CC_RANK is set and R2CC_SIZE is not: set both"),
        ({"R2CC_SIZE": "2", "R2CC_RANK": ""}, "^R2CC_SIZE is set and R2CC_RANK is not: set both"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "^RANK=x: give a whole number"),
        ({"RANK": "5", "WORLD_SIZE": "2", **MASTER}, "^RANK=5: ranks go from 0 to 1, as WORLD_SIZE=2 says"),
        ({"R2CC_RANK": "2", "R2CC_SIZE": "2"}, "^R2CC_RANK=2: ranks go from 0 to 1, as R2CC_SIZE=2 says"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "set MASTER_ADDR and MASTER_PORT, or R2CC_ROOT=host:port"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "0"},
            "^MASTER_ADDR=a MASTER_PORT=0: give",
        ),
    ],
)
def test_what_is_missing_or_no_number_is_one_line(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        launched(environ)
    assert "\n" not in str(caught.value)
