"""A figure as files (PNG and SVG) and as something a page can hold without fetching anything."""

import base64
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from reports.figures import style

MAX_SVG_BYTES = 400_000
"""Above this a figure goes into the page as PNG: many marks make an SVG larger than its picture."""
PNG_DPI = 150


def save(figure: Figure, folder: Path, name: str) -> str:
    """Writes `name`.png and `name`.svg into `folder`; returns the figure as a data URI for an <img>."""
    folder.mkdir(exist_ok=True)
    kinds = {}
    with style.applied():
        for kind, about in (("svg", {"Date": None}), ("png", {})):
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=about)
            kinds[kind] = buffer.getvalue()
            (folder / f"{name}.{kind}").write_bytes(kinds[kind])
    if len(kinds["svg"]) <= MAX_SVG_BYTES:
        return f"data:image/svg+xml;base64,{base64.b64encode(kinds['svg']).decode()}"
    return f"data:image/png;base64,{base64.b64encode(kinds['png']).decode()}"
