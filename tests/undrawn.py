"""A page without pictures: drawing takes a second a page, and most tests look at what else a page or a run says."""

from __future__ import annotations

import pytest


def leave_out_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages be written without plots."""
    monkeypatch.setattr("validate.page.page.layer_plots", lambda *ignored: [])
    monkeypatch.setattr("validate.page.page.certificate_plot", lambda *ignored: None)
    monkeypatch.setattr("validate.page.page.logits_plot", lambda *ignored: None)
