"""The demo runs, and PCFI comes out best on the digits."""

import numpy as np

from pcfi import demo


def test_demo_prints_the_table_and_draws_the_picture(tmp_path, capsys):
    picture = tmp_path / "demo.png"
    demo.main(str(picture))
    printed = capsys.readouterr().out
    assert all(f"\n{method:<12}" in printed for method in demo.METHODS)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_pcfi_has_the_smallest_error_on_the_removed_pixels():
    rows, result = demo.compare(demo.load_digits())
    errors = {method: error for method, error, _ in rows}
    assert min(errors, key=errors.get) == "pcfi"
    assert result.converged
    assert np.isfinite(result.values).all()
