from rich.console import Console

from gpudoc.render.train_live import Panel, spark
from tests.render.test_train import progressed, started


def drawn(panel, width=140):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(panel)
    return console.export_text()


def test_before_the_first_step_it_says_that_it_starts():
    assert "step 0/20: the first steps" in drawn(Panel(started()))


def test_the_panel_follows_the_steps():
    panel = Panel(started())
    for step, loss in ((5, 2.0), (10, 1.25)):
        panel.see(progressed(step, loss=loss))
    text = drawn(panel)
    assert "step 10/20" in text
    assert "loss 1.2500" in text
    assert "1,234 samples/s" in text
    assert "data wait 25%" in text
    assert "left" in text


def test_a_loss_that_is_not_a_number_does_not_break_the_curve():
    panel = Panel(started())
    panel.see(progressed(5, loss=float("nan")))
    assert "loss nan" in drawn(panel)


def test_the_curve_is_lowest_where_the_loss_is():
    assert spark([1.0]) == ""
    falling = spark([3.0, 2.0, 1.0])
    assert (falling[0], falling[-1]) == ("█", "▁")
    assert spark([2.0, 2.0]) == "▁▁"
    assert len(spark([float(i) for i in range(500)])) == 16


def test_it_fits_into_eighty_columns_with_its_newest_loss():
    panel = Panel(started())
    for step in range(1, 20):
        panel.see(progressed(step, loss=20.0 - step))
    text = drawn(panel, width=80)
    assert "…" not in text
    assert len(text.splitlines()) == 3


def test_at_the_last_step_nothing_is_left_but_saving():
    panel = Panel(started())
    panel.see(progressed(20))
    assert "saving the final state" in drawn(panel)


def test_a_stream_without_a_length_has_no_epoch():
    panel = Panel(started())
    panel.see(progressed(5, epoch=None))
    assert "epoch" not in drawn(panel)
