"""Rows, statistics, figures and pages: everything that is known after the hosts are gone."""
