"""A study written down: `run_readings` makes every table, `summary` tells it, `write_report` keeps it in a folder."""

from pathsum.report.folder import check_place, write_report
from pathsum.report.results import run_readings
from pathsum.report.summary import summary

__all__ = ["check_place", "run_readings", "summary", "write_report"]
