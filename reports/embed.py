"""A figure as files, and as a data URI that a page can hold without fetching anything. Does I/O.

Equal data make equal files: no date is written into them. Each file carries the caption and, as its title, the
alternative text.
"""

import base64
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from reports.figures import style

MAX_SVG_BYTES = 400_000
"""Above this size a figure goes into the page as PNG: with many marks, an SVG is larger than the bitmap."""
PNG_DPI = 150
TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}


def save(
    figure: Figure, folder: Path, name: str, caption: str, alt: str, types: Sequence[str] = ("svg", "pdf", "png")
) -> str:
    """Writes `figure` as `name` in each of `types` into `folder`; returns it as a data URI for an <img>.

    `alt` says the result in words, for readers who cannot see the figure.
    """
    folder.mkdir(exist_ok=True)
    made: dict[str, bytes] = {}
    with style.applied(), warnings.catch_warnings():
        # A name from a file may contain letters that the font lacks; a box in a label is no reason to fail.
        warnings.filterwarnings("ignore", message=".*Glyph .* missing")
        if figure.get_layout_engine() is not None:
            # Every file has the layout of the SVG, whose letters are not hinted. Hinted ones are up to 3 % wider, so
            # that a long label began outside the PNG.
            mpl.rcParams["text.hinting"] = "none"
        kinds = list(types)
        for kind in kinds:
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=_metadata(kind, caption, alt))
            made[kind] = buffer.getvalue()
            (folder / f"{name}.{kind}").write_bytes(made[kind])
            if kind == "svg" and len(made[kind]) > MAX_SVG_BYTES and "png" not in kinds:
                kinds.append("png")
            # The layout is computed once. With any layout engine set, even one that does nothing, every other file type
            # would be drawn twice.
            figure.set_layout_engine(None)
    kind = "svg" if "svg" in made and len(made["svg"]) <= MAX_SVG_BYTES else "png"
    return f"data:{TYPES[kind]};base64,{base64.b64encode(made[kind]).decode('ascii')}"


def _metadata(kind: str, caption: str, alt: str) -> dict[str, str | None]:
    """Of an SVG the title is its <title>, which screen readers read."""
    text, title = style.plain(caption, 2000), style.plain(alt, len(alt))
    if kind == "svg":
        return {"Date": None, "Title": title, "Description": text}
    return {"Title": title, **({"Subject": text, "CreationDate": None} if kind == "pdf" else {"Description": text})}
