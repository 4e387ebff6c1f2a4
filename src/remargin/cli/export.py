"""remargin export: a model for the hub and ONNX Runtime, or vectors for a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import MODEL, Config, Overwrite, Pooling, Similarity, SkipBad, Threads
from remargin.progress import tell

SAFETENSORS = "Copy of a model folder of any layout, its pickled weights (.bin) as safetensors; only tensors are read."
DATA = "With --int8: collection whose test split measures its loss of nDCG@10. For vectors: where their collection is."


def export(
    out: Annotated[Path, typer.Option(help="Model folder to write; for vectors or an index, the Parquet file.")],
    model: Annotated[str | None, typer.Option(help=f"{MODEL} Of runs/NAME/model, the card has the results.")] = None,
    vectors: Annotated[Path | None, typer.Option(help="Vectors that `remargin encode` wrote, as Parquet.")] = None,
    index: Annotated[Path | None, typer.Option(help="Index whose vectors to write as Parquet.")] = None,
    data: Annotated[str | None, typer.Option(help=DATA)] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="ONNX file with pooling and normalisation inside.")] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="ONNX file with dynamic int8 quantisation, beside the other one.")
    ] = False,
    push: Annotated[
        str | None, typer.Option(help="Name on the Hugging Face hub to upload the folder to, as a private model.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: as a public model.")] = False,
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="Texts beside the vectors in Parquet.")] = True,
    pooling: Pooling = None,
    similarity: Similarity = None,
    safetensors: Annotated[bool, typer.Option("--safetensors", help=SAFETENSORS)] = False,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> object:
    """Export a model for the Hugging Face hub and ONNX Runtime, or the vectors of an index as Parquet.

    Examples:
        remargin export --model runs/faq/model --out faq-hub --onnx
        remargin export --index faq.index --out faq.parquet
        remargin export --model facebook/contriever --safetensors --out contriever
    """
    import remargin

    exported = remargin.export(
        out,
        model,
        vectors,
        index,
        data=data,
        onnx=onnx,
        int8=int8,
        push=push,
        public=public,
        texts=texts,
        pooling=pooling,
        similarity=similarity,
        safetensors=safetensors,
        skip_bad=skip_bad,
        overwrite=overwrite,
    )
    if exported.rows is not None:
        tell(f"wrote {out}: {exported.rows:,} vectors{' with their texts' if texts else ''}")
        return exported
    tell(f"wrote {out}: the model{'' if safetensors else ' and its card, README.md'}")
    if exported.url is not None:
        tell(f"pushed to {exported.url}")
    return exported
