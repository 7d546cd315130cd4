"""The simulated device: runs that can be counted by hand."""

from __future__ import annotations

from tests.simulated_device import Call, Clock, Interval, device_end, simulate


def _kernel(at: int, work_ns: int) -> Call:
    return Call(at, "cudaLaunchKernel", dur_ns=2000, work_ns=work_ns)


def test_kernels_start_after_their_launch_and_after_the_one_before() -> None:
    done = simulate([_kernel(0, 10_000), _kernel(1000, 5000), _kernel(50_000, 1)])

    # A launch takes 2 us, a start 1 us more, and what is queued 1 us after the one before; each
    # launch moves the later ones by 2 us.
    assert [each.made for each in done] == [(0, 2000), (3000, 5000), (54_000, 56_000)]
    assert [each.ran for each in done] == [(3000, 13_000), (14_000, 19_000), (57_000, 57_001)]


def test_a_call_that_waits_returns_after_the_device_is_done_and_moves_the_rest() -> None:
    wait = Call(1000, "cudaStreamSynchronize", dur_ns=2000, waits=True)

    done = simulate([_kernel(0, 10_000), wait, _kernel(1500, 10)])

    assert [each.made for each in done] == [(0, 2000), (3000, 14_000), (14_500, 16_500)]
    assert device_end(done) == 17_510
    clock = Clock(done, ())
    assert clock.interval(Interval(0, 1000)) == (2000, 3000)
    assert clock.interval(Interval(500, 1200)) == (2500, 14_200)


def test_without_a_pause_all_after_it_comes_earlier() -> None:
    calls = [_kernel(0, 10), _kernel(150, 10), _kernel(10_000, 10)]

    done = simulate(calls, [Interval(100, 9100)])

    assert [each.made for each in done] == [(0, 2000), (3000, 5000)]
    clock = Clock(done, [Interval(100, 9100)])
    assert clock.interval(Interval(50, 9200)) == (2050, 2200)
    assert clock.is_cut(Interval(100, 200))
    assert not clock.is_cut(Interval(99, 200))
