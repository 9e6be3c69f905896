"""What a language model forgot: labels shifted rightly, padding, adapters off, divergence, questions; merging."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

from tests.cli.typed import typed
from tmln.integrations.language_retention import (
    Measured,
    Question,
    answer_questions,
    bootstrap_interval,
    divergence,
    find_texts,
    load_pair,
    measure_retention,
    read_questions,
    score_texts,
    sum_log_likelihoods,
)
from tmln.integrations.transformers import EvalForgetting
from tmln.integrations.wise_ft import choose_alpha, interpolate
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
WORDS = [
    "<unk>",
    "a",
    "cat",
    "sat",
    "on",
    "the",
    "mat",
    "dog",
    "ran",
    "far",
    "red",
    "blue",
    "is",
    "color",
    "of",
    "sky",
    "sea",
]
TEXTS = ["the cat sat on the mat", "a dog ran far", "the sky is blue", "cat"]


def run(*words: str) -> str:
    done = typed(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tokenizer() -> Any:
    inner = Tokenizer(models.WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


def model_of(seed: int, vocabulary: int = len(WORDS)) -> Any:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=vocabulary, max_position_embeddings=32, initializer_range=0.5, **sizes)
    )


def saved(folder: Path, seed: int) -> str:
    model_of(seed).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def adapter(base: str, folder: Path) -> str:
    torch.manual_seed(5)
    adapted = get_peft_model(LlamaForCausalLM.from_pretrained(base), LoraConfig(task_type="CAUSAL_LM", r=2))
    for name, p in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(p, std=0.5)
    adapted.save_pretrained(str(folder))
    return str(folder)


def slow_loss(model: Any, ids: list[int]) -> float:
    """-log p of each next token, one position at a time."""
    total = 0.0
    for t in range(1, len(ids)):
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([ids[:t]])).logits[0, -1]
        total -= float(logits.log_softmax(-1)[ids[t]])
    return total


def test_labels_are_shifted_by_hand() -> None:
    """Tokens 0, 1, 0: 0.5 for the 1 from the first position, 0.25 for the 0 from the second.

    Unshifted labels would give 0.5 * 0.75 * 0.9; the padded text predicts one token only.
    """
    logits = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]]).log().repeat(2, 1, 1)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    value, count = sum_log_likelihoods(logits, torch.tensor([[0, 1, 0], [0, 1, 1]]), mask)
    assert value.exp().tolist() == pytest.approx([0.125, 0.5])
    assert count.tolist() == [2, 1]


def test_divergence_by_hand() -> None:
    """p = (1/2, 1/2), q = (1/4, 3/4): log(4/3) / 2; the other direction is another number."""
    p, q = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
    assert float(divergence(p, q)) == pytest.approx(0.5 * math.log(4 / 3))
    assert float(divergence(q, p)) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert float(divergence(p, p)) == 0


def test_an_interval_of_equal_texts_is_a_point() -> None:
    assert bootstrap_interval([2.0, 4.0], [1.0, 2.0]) == (2.0, 2.0)
    low, high = bootstrap_interval([0.0, 1.0] * 50, [1.0] * 100)
    assert 0.35 < low < 0.45 < 0.55 < high < 0.65  # 0.5 +- 1.96 * 0.05


def test_scores_equal_a_slow_loop_whatever_the_batch() -> None:
    model, words = model_of(0), tokenizer()
    for size in (1, 8):
        lost, counts = score_texts(Measured(model.train(), words, batch_size=size), TEXTS)
        assert counts == [5, 3, 3]  # a text of one token predicts nothing
        expected = [slow_loss(model, words(text)["input_ids"]) for text in TEXTS[:3]]
        assert lost == pytest.approx(expected, rel=1e-4)
    assert Measured(model, words, max_length=3).encode(TEXTS[0]) == words(TEXTS[0])["input_ids"][:3]


def test_a_table_against_the_base() -> None:
    before, after = Measured(model_of(0), tokenizer()), Measured(model_of(1), tokenizer(), batch_size=2)
    found = measure_retention(before, after, TEXTS)
    means = [sum(lost) / sum(counts) for lost, counts in (score_texts(one, TEXTS) for one in (before, after))]
    row = found.rows["nats per token"]
    assert [row["before"], row["after"]] == pytest.approx(means)
    assert row["interval"][0] <= found.forgetting <= row["interval"][1]
    assert found.rows["perplexity"]["after"] == pytest.approx(math.exp(means[1]))
    size = sum(len(text) for text in TEXTS[:3])
    assert found.rows["bits per byte"]["before"] == pytest.approx(means[0] * 11 / math.log(2) / size)
    assert found.rows["KL from the base"]["after"] > 0
    same = measure_retention(before, before, TEXTS)
    assert same.forgetting == 0
    assert same.rows["KL from the base"]["after"] == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="vocabulary"):
        measure_retention(before, Measured(model_of(1, 30), tokenizer()), TEXTS)
    with pytest.raises(ValueError, match="two tokens"):
        measure_retention(before, after, ["cat"])


def test_an_adapter_off_is_its_base(tmp_path: Path) -> None:
    """Measured with the adapters of one model on and off: as a plain base, and as merged weights."""
    base = saved(tmp_path / "base", 0)
    before, after = load_pair(adapter(base, tmp_path / "adapter"), None)
    assert before.model is after.model
    found = measure_retention(before, after, TEXTS)
    plain: Any = Measured(LlamaForCausalLM.from_pretrained(base), tokenizer())
    assert score_texts(before, TEXTS)[0] == pytest.approx(score_texts(plain, TEXTS)[0], rel=1e-5)
    tuned: Any = after.model
    merged = Measured(tuned.merge_and_unload(), tokenizer())
    again = measure_retention(plain, merged, TEXTS)
    assert abs(found.forgetting) > 0.01
    for name, row in found.rows.items():
        assert row["after"] == pytest.approx(again.rows[name]["after"], rel=1e-4)


def test_questions_count_the_tokens_of_the_choice_alone(tmp_path: Path) -> None:
    """Against a slow loop; "the color" begins both choices and question."""
    model, words = model_of(3), tokenizer()
    item = Question("the color of the sky is", ("blue", "red sea", "far"), 0)
    start = words(item.question)["input_ids"]
    scores = []
    for choice in item.choices:
        ids = words(f"{item.question} {choice}")["input_ids"]
        scores.append(slow_loss(model, start) - slow_loss(model, ids))
    best = scores.index(max(scores))
    right = [
        answer_questions(Measured(model, words, batch_size=2), [Question(item.question, item.choices, k)])
        for k in range(3)
    ]
    assert right == [[int(k == best)] for k in range(3)]
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"question": "a", "choices": ["cat", "dog"], "answer": "dog"}), encoding="utf-8")
    assert read_questions(file) == [Question("a", ("cat", "dog"), 1)]
    for bad in ({"question": "a", "choices": ["b"]}, {"question": "a", "choices": ["b", "c"], "answer": 2}):
        file.write_text(json.dumps(bad), encoding="utf-8")
        with pytest.raises(ValueError, match="item 1"):
            read_questions(file)


def test_texts_by_name_and_file(tmp_path: Path) -> None:
    assert len(find_texts("general")) > 20
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n", encoding="utf-8")
    assert find_texts(str(tmp_path / "a.txt")) == ["one\ntwo", "three"]
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"words": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="row 2"):
        find_texts(str(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").write_text("{\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1"):
        find_texts(str(tmp_path / "a.jsonl"))


def test_the_commands(tmp_path: Path) -> None:
    base, tuned = saved(tmp_path / "base", 0), saved(tmp_path / "tuned", 1)
    texts = tmp_path / "t.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    words = ["retention", tuned, "--before", base, "--texts", str(texts)]
    found = json.loads(run(*words, "--format", "json"))
    assert found["tokens"] == 11
    assert f"{found['rows']['nats per token']['after']:.3f}" in run(*words, "--page", str(tmp_path / "p.html"))
    assert "KL from the base" in (tmp_path / "p.html").read_text(encoding="utf-8")
    out = tmp_path / "merged"
    assert "0.3" in run("merge", base, tuned, "--alpha", "0.3", "-o", str(out))
    states = [LlamaForCausalLM.from_pretrained(folder).state_dict() for folder in (base, tuned, str(out))]
    for name, value in states[2].items():
        assert torch.allclose(value, 0.7 * states[0][name] + 0.3 * states[1][name], atol=1e-6)
    text = run(
        "merge", base, adapter(base, tmp_path / "adapter"), "--old", str(texts), "--new", str(texts), "-o", str(out)
    )
    assert text.count("(chosen)") == 1


def test_the_weights_between_by_hand() -> None:
    """A layer of one weight at 0 before and 1 after: old data ask for 0, new data for 1, twice as strongly."""
    model = nn.Linear(1, 1, bias=False)
    base, tuned = {"weight": torch.zeros(1, 1)}, {"weight": torch.ones(1, 1)}
    best, readings = choose_alpha(
        model, base, tuned, lambda: (float(model.weight) ** 2, 2 * (1 - float(model.weight)) ** 2), (0.0, 0.5, 0.7, 1.0)
    )
    assert best == 0.7  # 0.49 + 0.18, of 2, 0.75, 0.67 and 1
    assert float(model.weight) == pytest.approx(0.7)
    assert [reading[0] for reading in readings] == [0.0, 0.5, 0.7, 1.0]
    half = interpolate(
        {"w": torch.tensor([1.0]).half(), "n": torch.tensor(1)}, {"w": torch.tensor([2.0]), "n": torch.tensor(4)}, 0.5
    )
    assert (half["w"].dtype, float(half["w"]), int(half["n"])) == (torch.float16, 1.5, 4)
    with pytest.raises(ValueError, match="weight"):
        interpolate(base, {}, 0.5)
    with pytest.raises(ValueError, match="shape"):
        interpolate(base, {"weight": torch.ones(2, 1)}, 0.5)


def test_forgetting_is_in_the_log(tmp_path: Path) -> None:
    model, words = model_of(0), tokenizer()
    lost, counts = score_texts(Measured(model, words), TEXTS[:3])
    rows: list[dict[str, Tensor]] = [{"input_ids": torch.tensor([3, 4, 5]), "labels": torch.tensor([3, 4, 5])}] * 8
    check = EvalForgetting(words, TEXTS[:3], every=2)
    options: dict[str, Any] = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    args = TrainingArguments(
        str(tmp_path), learning_rate=0.05, per_device_train_batch_size=2, num_train_epochs=1, **options
    )
    trainer = Trainer(model, args, train_dataset=rows, callbacks=[check])
    trainer.train()
    before = sum(lost) / sum(counts)
    lost, counts = score_texts(Measured(model, words), TEXTS[:3])
    assert check.forgetting == pytest.approx(sum(lost) / sum(counts) - before, rel=1e-4)
    logged = [note["forgetting"] for note in trainer.state.log_history if "forgetting" in note]
    assert len(logged) == 3  # steps 2 and 4, and the end
    assert logged[-1] == check.forgetting
