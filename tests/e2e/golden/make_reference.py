#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the reference of tests/e2e/encoder_test.cpp: what the published implementation makes of the same sentences.

    make_reference.py MODEL_FOLDER SENTENCES OUTPUT_FOLDER

README.md beside this file has the commands and versions. Nothing of examples/encoder is used: sentence-transformers
reads the package's own folder, tokenizes, encodes, pools and normalises, all in FP32 on the CPU.
"""

import json
import pathlib
import platform
import sys

import sentence_transformers
import tokenizers
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

DRAWS = 32
# Text that the sentences do not cover: each rule of the tokenizer once.
TOKENIZER_CASES = [
    "", "   ", "Hello, World!", "unaffable", "HTTP/2.0 (RFC 7540)", "naïve café, crème brûlée; Ångström",
    "Straße İstanbul ΟΔΥΣΣΕΥΣ Ёлка", "e\u0301clair and a\u0308pfel", "东京 tower は 高い", "한국어 문장", "ﬁne ½ № ™ ﬃ",
    "tabs\tand\nnewlines\r\nand\u00a0spaces\u3000here\u2028too", "zero\u200bwidth soft\u00adhyphen bell\u0007 null\u0000",
    "$5 + 3 = 8 ~ `x` ^y| <z> @#%&*_", "“quotes” — dashes… ‘single’ «guillemets» ¿qué? ¡no!", "don't we're o'clock",
    "emoji 🙂 and 🇦🇹 flags", "x" * 100, "x" * 101, "supercalifragilisticexpialidocious", "Tiếng Việt có dấu",
    "हिन्दी वाक्य", "ภาษาไทย", "עִבְרִית and العَرَبِيَّة", "2024-01-31T23:59:59Z", "\ufffd\ufeffmark", "Ⅷ Ⓐ Ａ ａ １", "\U0001d400\U0001d7d8",
    "word " * 300,
]


def half_ulp(x):
    """Half the distance of neighbouring BF16 numbers at x: 2^(e - 8) for |x| in [2^e, 2^(e+1)); 0 at 0."""
    _, exponent = torch.frexp(x)
    return torch.where(x == 0, torch.zeros_like(x), torch.ldexp(torch.ones_like(x), exponent - 1 - 8))


class RoundingNoise:
    """Adds to a tensor what rounding to BF16 would: an error uniform in +- half an ulp, independent in each entry."""

    def __init__(self):
        self.generator = torch.Generator()
        self.active = False

    def __call__(self, x):
        if not self.active:
            return x
        return x + (2 * torch.rand(x.shape, generator=self.generator) - 1) * half_ulp(x)


NOISE = RoundingNoise()


def attention(module, query, key, value, attention_mask, scaling=None, **_):
    """Plain softmax attention; the weights pass through BF16."""
    scores = query @ key.transpose(2, 3) * (scaling if scaling is not None else query.shape[-1] ** -0.5)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = NOISE(torch.softmax(scores, dim=-1))
    return (weights @ value).transpose(1, 2).contiguous(), weights


def add_rounding_points(bert):
    """The points where a BF16 encoder rounds (the table in examples/encoder/encoder.h), weights apart."""
    before = lambda m, args: (NOISE(args[0]), *args[1:])
    after = lambda m, args, out: NOISE(out)
    twice = lambda m, args, out: NOISE(NOISE(out))  # a product's own rounding, and that of its sum with the bias
    for layer in bert.encoder.layer:
        # The hidden states go in by name; only the projections read them here, the residual has its own copy
        layer.attention.self.register_forward_pre_hook(
            lambda m, args, kwargs: ((NOISE(args[0]), *args[1:]), kwargs) if args
            else (args, {**kwargs, "hidden_states": NOISE(kwargs["hidden_states"])}), with_kwargs=True)
        for projection in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value):
            projection.register_forward_hook(twice)
        layer.attention.output.dense.register_forward_pre_hook(before)
        layer.attention.output.dense.register_forward_hook(after)
        layer.intermediate.dense.register_forward_pre_hook(before)
        layer.intermediate.register_forward_hook(after)


def linears(bert):
    for layer in bert.encoder.layer:
        a = layer.attention
        yield from ((m, False) for m in (a.self.query, a.self.key, a.self.value, layer.output.dense))
        yield from ((m, True) for m in (a.output.dense, layer.intermediate.dense))  # bias in BF16 too


def main():
    folder, sentences_file, out = (pathlib.Path(a) for a in sys.argv[1:4])
    sentences = [line.strip() for line in sentences_file.read_text(encoding="utf-8").splitlines()]
    sentences = [line for line in sentences if line and not line.startswith("#")]
    torch.set_num_threads(1)
    AttentionInterface.register("bf16_noise", attention)
    AttentionMaskInterface.register("bf16_noise", eager_mask)

    def load():
        return sentence_transformers.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})

    def encode(model):
        with torch.no_grad():
            return model.encode(sentences, batch_size=len(sentences), convert_to_tensor=True, normalize_embeddings=True)

    def distance(x):
        return (x.double() - reference.double()).norm(dim=1)

    model = load()
    reference = encode(model)

    tanh = load()
    for layer in tanh[0].auto_model.encoder.layer:
        layer.intermediate.intermediate_act_fn = transformers.activations.ACT2FN["gelu_pytorch_tanh"]
    gelu_form = distance(encode(tanh))

    noisy = load()
    bert = noisy[0].auto_model
    bert.set_attn_implementation("bf16_noise")
    quiet = float(distance(encode(noisy)).max())  # what the other attention code alone changes: FP32 rounding
    add_rounding_points(bert)
    weights = [(parameter, parameter.detach().clone())
               for linear, with_bias in linears(bert)
               for parameter in ([linear.weight, linear.bias] if with_bias else [linear.weight])]
    NOISE.active = True
    rounding = []
    for draw in range(DRAWS):
        NOISE.generator.manual_seed(draw)
        with torch.no_grad():
            for parameter, original in weights:
                parameter.copy_(NOISE(original))
        rounding.append(distance(encode(noisy)))
    rounding = torch.stack(rounding, dim=1)  # [sentence][draw]
    if not quiet < 1e-3 * float(rounding.min()):
        sys.exit(f"the attention code with rounding points is another function: {quiet:.2e} without any noise")

    tokenizer = model.tokenizer
    tokens = lambda text: tokenizer(text, truncation=True, max_length=256)["input_ids"]
    out.mkdir(parents=True, exist_ok=True)
    reference.numpy().astype("<f4").tofile(out / "minilm_embeddings.f32")
    document = {
        "made_by": "tests/e2e/golden/make_reference.py",
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__, "tokenizers": tokenizers.__version__,
                     "sentence_transformers": sentence_transformers.__version__},
        "hidden": reference.shape[1],
        "sentences": [{"text": text, "tokens": tokens(text), "gelu_form": float(f"{float(g):.6g}"),
                       "rounding": [float(f"{float(r):.6g}") for r in row]}
                      for text, g, row in zip(sentences, gelu_form, rounding)],
        "tokenizer_cases": [{"text": text, "tokens": tokens(text)} for text in TOKENIZER_CASES],
    }
    lines = json.dumps(document, indent=None, ensure_ascii=True).replace('{"text"', '\n{"text"')
    (out / "minilm_embeddings.json").write_text(lines + "\n", encoding="utf-8")
    print(f"FP32 attention code {quiet:.2e}; GELU form {float(gelu_form.mean()):.2e} to {float(gelu_form.max()):.2e}; "
          f"BF16 rounding mean {float(rounding.mean()):.4f}, largest {float(rounding.max()):.4f}")


if __name__ == "__main__":
    main()
