"""The steps of the demo with materialized views: documents, their sentences, and embeddings of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from rich.console import Console, RenderableType

import pennon
from pennon.cli.demo.embedding import LatentModel
from pennon.cli.demo.steps import run_steps, show
from pennon.cli.output import build_table
from pennon.client import Connection

#: The data of the steps, under the names that their code shows.
corpus = [
    {
        "title": "Brewing",
        "text": "Green tea wants water of seventy degrees. Boiling water makes green tea bitter. "
        "Black tea wants boiling water and four minutes.",
    },
    {
        "title": "Storing",
        "text": "Tea leaves keep for a year in a closed tin. Light and air spoil the leaves. "
        "Never store leaves beside spices.",
    },
    {
        "title": "Gardens",
        "text": "The gardens of Assam lie beside a river. Monsoon rain waters the gardens for months. "
        "Darjeeling grows on steep mountains.",
    },
]
model = LatentModel.fit([sentence for document in corpus for sentence in document["text"].split(". ")], width=8)


def write_documents(shop: Connection) -> RenderableType:
    """Documents are usually too long to search as a whole."""
    documents = shop.create_table("documents", corpus)
    return build_table(("table", "rows"), [("shop$documents", documents.count_rows())])


def split_documents(shop: Connection) -> RenderableType:
    """A chunker splits each row into several; a materialized view keeps track of their source rows."""

    @pennon.chunker
    def sentence(text: str) -> Iterator[str]:
        yield from (part.strip(" .") for part in text.split(". ") if part)

    sentences = shop.create_chunk_view("sentences", "documents", sentence, columns=["title"], progress=False)
    rows = sentences.search().select(["title", "sentence"]).to_list()
    return build_table(("title", "sentence"), ((row["title"], row["sentence"]) for row in rows))


def embed_sentences(shop: Connection) -> RenderableType:
    """A view is a table and can have feature columns: here an embedding, by a model fitted to the corpus."""

    @pennon.udf(data_type=pa.list_(pa.float32(), 8))
    def meaning(sentence: str) -> list[float]:
        return model.embed(sentence)

    sentences = shop.open_view("sentences")
    sentences.add_columns({"meaning": meaning})
    job = sentences.backfill("meaning", progress=False)
    return build_table(("column", "computed"), [("meaning", f"{job.counters.get('rows_computed', 0):.0f}")])


def search_sentences(shop: Connection) -> RenderableType:
    """Vector search finds sentences by their meaning."""
    sentences = shop.open_view("sentences")
    nearest = sentences.search(model.embed("hot water for tea"), vector_column_name="meaning").limit(2).to_list()
    return _found(nearest)


def change_documents(shop: Connection) -> RenderableType:
    """One document is updated, another is deleted. The plan of a refresh shows what changes in the view."""
    documents = shop.open_table("documents")
    text = "Water for white tea should be hot but not boiling. Iced tea wants cold water and a night."
    documents.update(where="title = 'Brewing'", values={"text": text})
    documents.delete("title = 'Gardens'")
    plan = shop.open_view("sentences").plan()
    rows = (plan.mode, plan.rows_to_add, plan.rows_to_update, plan.rows_to_remove)
    return build_table(("plan", "to add", "to update", "to remove"), [rows])


def refresh_sentences(shop: Connection) -> RenderableType:
    """An incremental refresh applies just that in one commit; other sentences are not computed again."""
    sentences = shop.open_view("sentences")
    result = sentences.refresh(progress=False).result
    counters = sentences.backfill("meaning", progress=False).counters
    return _refreshed(result or {}, counters)


def search_again(shop: Connection) -> RenderableType:
    """The search finds the new text."""
    sentences = shop.open_view("sentences")
    nearest = sentences.search(model.embed("hot water for tea"), vector_column_name="meaning").limit(2).to_list()
    return _found(nearest)


def show_views(url: str, out: Console) -> None:
    """Show a chunker view of documents, and its incremental refresh."""
    shop = pennon.connect(url, database="shop")
    out.print()
    show("model = LatentModel.fit(sentences_of(corpus), width=8)  # latent semantic analysis", out)
    run_steps(out, shop, write_documents, split_documents, embed_sentences, search_sentences)
    run_steps(out, shop, change_documents, refresh_sentences, search_again)


def _refreshed(result: Mapping[str, object], counters: Mapping[str, float]) -> RenderableType:
    changes = [result[name] for name in ("mode", "rows_added", "rows_updated", "rows_removed")]
    computed = f"{counters.get('rows_computed', 0):.0f}"
    return build_table(
        ("refresh", "sentences added", "updated", "removed", "meanings computed"), [[*changes, computed]]
    )


def _found(nearest: list[dict[str, object]]) -> RenderableType:
    rows = ((row["title"], row["sentence"], f"{row['_distance']:.2f}") for row in nearest)
    return build_table(("title", "sentence", "distance"), rows)
