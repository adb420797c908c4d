"""TensorRT's memory figures are read out of its log, and a full disk does not end the process inside TensorRT."""

import errno
import io
from typing import Any

import pytest

from artifacts.errors import StageError
from build.log import BuildLog
from build.memory import PLAN_EXTRA
from build.weights import check_stored_once, most_weights
from tests.test_build_options import graph

SAID = (
    ("INFO", "Total Activation Memory: 201326592 bytes"),
    ("INFO", "Max Scratch Memory: 512 bytes"),
    ("INFO", "Total Activation Memory: 11400000 bytes"),
    ("VERBOSE", "Total Weights Memory is mentioned: 7 bytes"),
    ("INFO", "Total Weights Memory: 6150197248 bytes"),
    ("INFO", "[MemUsageStats] Peak memory usage of TRT CPU/GPU memory allocators: CPU 12 MiB, GPU 3 MiB"),
    ("ERROR", "of two\nlines"),
)


def test_figures_are_read() -> None:
    file, echoed = io.StringIO(), list[str]()
    log = BuildLog(file, echoed.append)
    for severity, message in SAID:
        log.hear(severity, message)
    figures = log.figures
    assert (figures.weights, figures.activations, figures.scratch) == (6150197248, [201326592, 11400000], [512])
    assert figures.allocator_peak == {"host": 12 << 20, "device": 3 << 20}
    assert log.errors == ["of two\nlines"]
    assert len(echoed) == len(SAID)
    assert "VERBOSE Total Weights Memory is mentioned" in file.getvalue()


class FullDisk(io.StringIO):
    """A file on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_kept_for_later() -> None:
    log = BuildLog(FullDisk())
    for severity, message in SAID:
        log.hear(severity, message)
    assert log.failure is not None
    assert log.failure.errno == errno.ENOSPC
    assert log.figures.weights == 6150197248


@pytest.mark.parametrize(("times", "problem"), [(1.0, ""), (1.04, ""), (1.2, "1.20 times"), (2.0, "2.00 times")])
def test_weights_may_take_five_percent_more(times: float, problem: str) -> None:
    source: Any = graph()
    object.__setattr__(source, "weights", 10**7)
    assert most_weights(source) == 10_500_512
    if problem:
        with pytest.raises(StageError, match=problem):
            check_stored_once(int(times * 10**7), 0, source)
    else:
        check_stored_once(int(times * 10**7), 0, source)


def test_where_tensorrt_says_nothing_the_plans_size_is_judged() -> None:
    source = graph()
    check_stored_once(None, PLAN_EXTRA, source)
    with pytest.raises(StageError, match="more than once"):
        check_stored_once(None, PLAN_EXTRA + 2000, source)
