import os
import signal
import threading

import pytest

from holdfast.errors import Interrupted
from holdfast.spurious import Spare
from holdfast.training import Run, Training, fit
from holdfast.training.interruption import interruptible, interruptions
from tests.training.test_resume import fingerprint
from tests.training.toy import toy_model, toy_splits

SETTINGS = Training(epochs=3, batch_size=7, learning_rate=0.05, seed=3, checkpoint_seconds=1e9)


def train(run=None, listeners=()):
    model = toy_model()
    fit(model, toy_splits(), Spare(infer_epoch=1, k=1), SETTINGS, run=run, listeners=listeners)
    return fingerprint(model)


def signal_at(number, steps):
    def listener(event):
        if event.step >= steps and event.kind in ("step", "epoch", "plan"):
            os.kill(os.getpid(), number)

    return listener


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("steps", [1, 9, 20])
def test_a_signal_saves_at_the_next_step_and_the_run_goes_on_to_the_bit(tmp_path, number, steps):
    run = Run.create(tmp_path / "run", {})
    with interruptible(), pytest.raises(Interrupted) as asked:
        train(run, [signal_at(number, steps)])
    assert asked.value.signal == number and run.status == "interrupted"
    assert run.has_checkpoint()
    done = run.load_checkpoint()["curator"]["clock"]["step"]
    assert done >= steps
    assert train(Run.open(tmp_path / "run")) == train()


def test_without_a_run_there_is_nothing_to_save_and_training_goes_on():
    with interruptible():
        assert train(listeners=[signal_at(signal.SIGTERM, 3)]) == train()


def test_signals_do_what_they_did_before_once_the_block_is_over():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruptions.requested() == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before and interruptions.requested() is None


def test_work_that_is_whole_at_any_time_ends_where_the_signal_comes():
    with pytest.raises(Interrupted), interruptible(at_once=True):
        os.kill(os.getpid(), signal.SIGUSR1)
        pytest.fail("the signal changed nothing")


def test_another_thread_leaves_signals_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look():
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
