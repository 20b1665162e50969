"""Features of words with the context of a document, on cases made by hand."""

import gzip

import filbert
from feature_extraction import features, read, with_context

# Three sentences of one document, as tokens of words.
SENTENCES = [[[1], [2, 3]], [[4, 5], [6]], [[7], [8], [9]]]


def test_a_sentence_is_in_the_middle_of_its_neighbours_and_only_its_words_are_read():
    assert with_context(SENTENCES, 1, 9, neighbours=False) == ([4, 5, 6], [0, 2])
    assert with_context(SENTENCES, 1, 9, neighbours=True) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 5])
    # Of four free places two are before the sentence, and more where nothing follows.
    assert with_context(SENTENCES, 1, 7, neighbours=True) == ([2, 3, 4, 5, 6, 7, 8], [2, 4])
    assert with_context(SENTENCES, 2, 7, neighbours=True) == ([3, 4, 5, 6, 7, 8, 9], [4, 5, 6])
    # Words beyond the limit have the features of the last token.
    assert with_context(SENTENCES, 2, 2, neighbours=True) == ([7, 8], [0, 1, 1])


def test_context_changes_features_and_not_their_number(tmp_path):
    path = tmp_path / "train.conll.gz"
    with gzip.open(path, "wt") as file:
        file.write(
            "-DOCSTART- O\n\nPaul B-PER\nsings O\n\nHe O\nplays O\n\n-DOCSTART- O\n\nBonn B-LOC\n"
        )
    documents = read(path, 10)
    assert [[words for words, _ in document] for document in documents] == [
        [["Paul", "sings"], ["He", "plays"]], [["Bonn"]],
    ]  # fmt: skip
    model = filbert.load("minilm")
    alone, together = (features(model, documents, neighbours) for neighbours in (False, True))
    assert [row.shape for row in alone] == [row.shape for row in together]
    assert [len(row) for row in alone] == [2, 2, 1]
    # The last layer sees the other sentence; a document of one sentence has no context.
    assert not alone[0][:, -1].allclose(together[0][:, -1], atol=1e-3)
    assert alone[2].equal(together[2])
