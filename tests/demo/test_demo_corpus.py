"""The corpus of a small tree of modules whose words, edges and classes are known."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.demo.corpus import Corpus, build_corpus, write_npz
from dlatent.errors import DataError
from dlatent.stores import open as door
from dlatent.stores.ingest import ingest

FILLER = "# alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima\n"
TREE = {
    "big/__init__.py": FILLER + "from big import one\n",
    "big/one.py": FILLER + "import os\nfrom . import two\nfrom .two import helper\nwalrus_count = walrus = 1\n",
    "big/two.py": FILLER + "import big.one\nimport big.two\nfrom small import solo\nwalrus = 2\n",
    "big/three.py": FILLER + "from .one.deep import name\nfrom big import *\nwalrus = 'walrus'\n",
    "small/__init__.py": FILLER + "import small.solo.inner\n",
    "small/solo.py": FILLER + "zebra = 3\n",
    "small/copy_of_solo.py": FILLER + "zebra = 3\n",
    "small/brief.py": "x = 1\n",
    "small/broken.py": FILLER + "def (:\n",
    "small/odd.py": b"# caf\xe9\n",
    "plain.py": FILLER + "from ...beyond import thing\nzebra = 4\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in TREE.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return tmp_path / "lib"


def build(tree: Path, **options: int | float) -> Corpus:
    settings: dict[str, int | float] = {
        "fewest_documents": 2,
        "largest_share": 1.0,
        "smallest_class": 3,
        "processes": 1,
    }
    return build_corpus([tree], **(settings | options))  # type: ignore[arg-type]


def count(corpus: Corpus, module: str, term: str) -> int:
    row = list(corpus.names).index(module)
    return int(corpus.counts.toarray()[row, list(corpus.terms).index(term)])


def test_modules_are_sorted_and_the_rest_is_counted_by_reason(tree: Path) -> None:
    corpus = build(tree)
    assert list(corpus.names) == ["big", "big.one", "big.three", "big.two", "plain", "small", "small.copy_of_solo"]
    assert corpus.left_out == {"copy": 1, "encoding": 1, "few words": 1, "syntax": 1}


def test_counts_are_canonical_and_known(tree: Path) -> None:
    corpus = build(tree)
    assert isinstance(corpus.counts, sp.csr_array)
    assert corpus.counts.has_canonical_format
    assert corpus.counts.shape == (7, len(corpus.terms))
    assert list(corpus.terms) == sorted(corpus.terms)
    assert [count(corpus, f"big.{name}", "walrus") for name in ("one", "two", "three")] == [2, 1, 1]
    assert count(corpus, "plain", "zebra") == 1
    assert count(corpus, "big", "alpha") == 1


def test_words_too_rare_too_common_or_empty_of_meaning_are_left_out(tree: Path) -> None:
    corpus = build(tree, fewest_documents=3, largest_share=0.5)
    assert list(corpus.terms) == ["big", "walrus"]
    assert list(corpus.names) == ["big", "big.one", "big.three", "big.two"]
    assert corpus.left_out["few words"] == 4
    assert not {"import", "from", "def", "the"} & set(build(tree).terms)


def test_edges_are_the_imports_between_modules(tree: Path) -> None:
    corpus = build(tree)
    graph = {(str(corpus.names[i]), str(corpus.names[j])) for i, j in corpus.edges}
    assert graph == {
        ("big", "big.one"),
        ("big.one", "big.two"),
        ("big.two", "big.one"),
        ("big.two", "small"),
        ("big.three", "big.one"),
        ("big.three", "big"),
    }
    assert corpus.edges.tolist() == sorted(corpus.edges.tolist())


def test_classes_are_packages_with_enough_modules(tree: Path) -> None:
    corpus = build(tree)
    assert list(corpus.class_names) == ["big"]
    assert list(corpus.groups) == ["big"] * 4 + ["plain", "small", "small"]
    assert list(corpus.labels) == [0, 0, 0, 0, -1, -1, -1]
    assert list(build(tree, smallest_class=1).labels) == [0, 0, 0, 0, 1, 2, 2]


def test_a_cap_thins_out_and_is_counted(tree: Path) -> None:
    corpus = build(tree, most_modules=8, fewest_documents=1)
    assert corpus.left_out["cap"] == 3
    assert len(corpus.names) + sum(corpus.left_out.values()) == len(TREE)


def same(left: Corpus, right: Corpus) -> bool:
    arrays = ("terms", "names", "groups", "labels", "class_names", "edges")
    parts = ("data", "indices", "indptr")
    return (
        all(np.array_equal(getattr(left, name), getattr(right, name)) for name in arrays)
        and all(np.array_equal(getattr(left.counts, name), getattr(right.counts, name)) for name in parts)
        and left.left_out == right.left_out
    )


def test_the_corpus_does_not_depend_on_the_processes(tree: Path) -> None:
    assert same(build(tree), build(tree, processes=2))
    assert not same(build(tree), build(tree, fewest_documents=1))


def test_a_tree_without_words_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(DataError, match=r"No Python module with enough words.*" + tmp_path.name):
        build_corpus([tmp_path], processes=1)


def test_the_file_holds_the_plain_parts_of_a_csr_matrix(tree: Path, tmp_path: Path) -> None:
    corpus = build(tree)
    path = tmp_path / "corpus.npz"
    write_npz(corpus, path)
    with np.load(path, allow_pickle=False) as parts:
        matrix = sp.csr_array((parts["X_data"], parts["X_indices"], parts["X_indptr"]), shape=parts["X_shape"])
        assert (matrix != corpus.counts).nnz == 0
        assert parts["y"].tolist() == corpus.labels.tolist()
        assert parts["class_names"].tolist() == ["big"]
        assert parts["terms"].tolist() == corpus.terms.tolist()
        assert parts["edges"].tolist() == corpus.edges.tolist()
        assert parts["ids"].tolist() == corpus.names.tolist()
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["corpus.npz"]


def test_ingest_reads_the_file(tree: Path, tmp_path: Path) -> None:
    corpus = build(tree)
    write_npz(corpus, tmp_path / "corpus.npz")
    report = ingest(tmp_path / "corpus.npz", tmp_path / "corpus.zarr")
    assert report.shape == corpus.counts.shape
    assert report.nnz == corpus.counts.nnz
    stored = door.open(tmp_path / "corpus.zarr")
    (block,) = stored.blocks
    assert np.array_equal(sp.csr_array(block.load()).toarray(), corpus.counts.toarray())
    assert list(stored.labels.samples) == list(corpus.names)
    assert list(stored.labels.features) == list(corpus.terms)


def test_a_file_that_cannot_be_written_leaves_nothing(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: object, **parts: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        write_npz(build(tree), tmp_path / "corpus.npz")
    assert [entry.name for entry in tmp_path.iterdir()] == ["lib"]
