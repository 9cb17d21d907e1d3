"""Reads the status files in which the processes of this host report on their NICs.

A process with ``R2CC_STATUS_DIR`` set (NCCL with the plugin, or the CPU runtime) keeps one file there about itself
(``native/base/report.h``). `r2ccl-status` shows all of them: as a table, as JSON, or as text for
Prometheus.
"""
