from holdfast.coresets.accounting import Accounts
from holdfast.coresets.health import cost_of_choosing


def test_choosing_that_costs_more_than_training_is_doubtful():
    assert cost_of_choosing(Accounts(forward=3000, backward=0), 1000).verdict == "ok"
    assert cost_of_choosing(Accounts(forward=3001, backward=0), 1000).verdict == "doubtful"
    assert cost_of_choosing(Accounts(forward=1001, backward=1000), 1000).verdict == "doubtful"
    assert cost_of_choosing(Accounts(), 0).value == 0
