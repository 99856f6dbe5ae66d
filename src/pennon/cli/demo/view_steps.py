"""The steps of the demo that are about views: documents, their sentences, and what these mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from rich.console import Console, RenderableType

import pennon
from pennon.cli.demo.embedding import LatentModel
from pennon.cli.demo.steps import show, take_all
from pennon.cli.output import table_of

#: What the steps work with, by the names they show.
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


def write_documents(shop: Any) -> RenderableType:
    """Documents are longer than what one searches for."""
    documents = shop.create_table("documents", corpus)
    return table_of(("table", "rows"), [("shop$documents", documents.count_rows())])


def split_documents(shop: Any) -> RenderableType:
    """A chunker makes rows of a row, and a view of it remembers whose they are."""

    @pennon.chunker
    def sentence(text: str) -> Iterator[str]:
        yield from (part.strip(" .") for part in text.split(". ") if part)

    sentences = shop.create_chunk_view("sentences", "documents", sentence, columns=["title"], progress=False)
    rows = sentences.search().select(["title", "sentence"]).to_list()
    return table_of(("title", "sentence"), ((row["title"], row["sentence"]) for row in rows))


def embed_sentences(shop: Any) -> RenderableType:
    """A view is a table, and can have feature columns: here an embedding, by a model that is fitted to the corpus."""

    @pennon.udf(data_type=pa.list_(pa.float32(), 8))
    def meaning(sentence: str) -> list[float]:
        return model.embed(sentence)

    sentences = shop.open_view("sentences")
    sentences.add_columns({"meaning": meaning})
    job = sentences.backfill("meaning", progress=False)
    return table_of(("column", "computed"), [("meaning", f"{job.counters.get('rows_computed', 0):.0f}")])


def search_sentences(shop: Any) -> RenderableType:
    """Sentences are found by what they mean."""
    sentences = shop.open_view("sentences")
    nearest = sentences.search(model.embed("hot water for tea"), vector_column_name="meaning").limit(2).to_list()
    return _found(nearest)


def change_documents(shop: Any) -> RenderableType:
    """One document is written anew, another is thrown away. A plan tells what that means for the view."""
    documents = shop.open_table("documents")
    text = "Water for white tea should be hot but not boiling. Iced tea wants cold water and a night."
    documents.update(where="title = 'Brewing'", values={"text": text})
    documents.delete("title = 'Gardens'")
    plan = shop.open_view("sentences").plan()
    rows = (plan.mode, plan.rows_to_add, plan.rows_to_update, plan.rows_to_remove)
    return table_of(("plan", "to add", "to update", "to remove"), [rows])


def refresh_sentences(shop: Any) -> RenderableType:
    """A refresh brings just that, in one commit; the sentences of the other document are not computed again."""
    sentences = shop.open_view("sentences")
    told = sentences.refresh(progress=False).result
    filled = sentences.backfill("meaning", progress=False).counters
    return _refreshed(told, filled)


def search_again(shop: Any) -> RenderableType:
    """The search finds what is written now."""
    sentences = shop.open_view("sentences")
    nearest = sentences.search(model.embed("hot water for tea"), vector_column_name="meaning").limit(2).to_list()
    return _found(nearest)


def walk_through_views(url: str, out: Console) -> None:
    """Have a view made of documents, and follow them."""
    shop = pennon.connect(url, database="shop")
    out.print()
    show("model = LatentModel.fit(sentences_of(corpus), width=8)  # latent semantic analysis", out)
    take_all([(write_documents, shop), (split_documents, shop), (embed_sentences, shop)], out)
    take_all([(search_sentences, shop), (change_documents, shop), (refresh_sentences, shop)], out)
    take_all([(search_again, shop)], out)


def _refreshed(told: dict[str, Any], filled: dict[str, float]) -> RenderableType:
    done = [told[name] for name in ("mode", "rows_added", "rows_updated", "rows_removed")]
    computed = f"{filled.get('rows_computed', 0):.0f}"
    return table_of(("refresh", "sentences added", "updated", "removed", "meanings computed"), [[*done, computed]])


def _found(nearest: list[dict[str, Any]]) -> RenderableType:
    rows = ((row["title"], row["sentence"], f"{row['_distance']:.2f}") for row in nearest)
    return table_of(("title", "sentence", "distance"), rows)
