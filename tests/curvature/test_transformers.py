"""The Fisher of Hugging Face's models: by hooks, and what their own loss says, one sample at a time, in float64."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

from tests.hugging import MODELS, Texts, bert, continued, gpt2, hidden, llama, lora
from tmln.curvature import Fisher, diagonal_fisher


def batch_for(name: str, size: int) -> tuple[nn.Module, Texts]:
    torch.manual_seed(0)
    model = MODELS[name].make().double()
    batch = MODELS[name].draw(size)
    return model, {key: value.double() if value.is_floating_point() else value for key, value in batch.items()}


def by_own_loss(model: nn.Module, batch: Texts, name: str) -> dict[str, Tensor]:
    """Squares of the gradient of the model's own loss, turned from a mean over tokens into a sum, sample by sample."""
    names = [key for key, p in model.named_parameters() if p.requires_grad]
    parameters = [p for p in model.parameters() if p.requires_grad]
    squares = {key: torch.zeros_like(p) for key, p in zip(names, parameters, strict=True)}
    size = len(batch["labels"])
    model.eval()
    for i in range(size):
        one = {key: value[i : i + 1] for key, value in batch.items()}
        scored = int((one["labels"][:, 1:] if name == "tokens" else one["labels"]).ne(-100).sum())
        output = model(**one) if hasattr(model, "config") else None
        if output is None:  # a model of one's own: no loss inside
            logits = model(**{key: value for key, value in one.items() if key != "labels"})["logits"]
            loss = nn.functional.cross_entropy(logits, one["labels"])
        else:
            loss = output.loss
        if scored:
            gradients = torch.autograd.grad(scored * loss, parameters, allow_unused=True)
            for key, gradient in zip(names, gradients, strict=True):
                if gradient is not None:
                    squares[key] += gradient**2 / size
    return squares


def assert_close(fisher: Fisher, expected: dict[str, Tensor], tolerance: float) -> None:
    assert set(fisher) == set(expected)
    scale = max(float(value.max()) for value in expected.values())
    for name, value in expected.items():
        allowed = tolerance * max(float(value.max()), 1e-9 * scale)
        assert float((fisher[name] - value).abs().max()) <= allowed, name


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_by_hooks_and_exact(name: str) -> None:
    """Their own loss is computed in float32, whatever the model: 1e-6."""
    model, batch = batch_for(name, 7)
    expected = by_own_loss(model, batch, MODELS[name].name)
    fisher = diagonal_fisher(model, [batch])
    assert (fisher.strategy, fisher.samples) == ("hooks", 7)
    assert_close(fisher, expected, 1e-6)
    parts = [{key: value[rows] for key, value in batch.items()} for rows in (slice(0, 3), slice(3, 4), slice(4, 7))]
    cut = diagonal_fisher(model, parts, chunk_size=2, log_likelihood=MODELS[name].name)
    assert_close(cut, dict(fisher), 1e-10)


def test_only_trainable_parameters_are_there() -> None:
    model, batch = batch_for("LoRA on BERT", 4)
    assert all("lora" in key or "modules_to_save" in key for key in diagonal_fisher(model, [batch]))


def test_an_adapter_on_a_tied_table() -> None:
    """The table is frozen, looked up and multiplied: it takes part, and costs nothing."""
    model, batch = batch_for("LoRA on GPT-2", 4)
    assert not any("wte" in key for key in diagonal_fisher(model, [batch]))


@pytest.mark.parametrize("name", ["BERT, classes", "GPT-2", "Llama"])
def test_autocast_around_it_does_not_lower_its_precision(name: str) -> None:
    model, batch = batch_for(name, 4)
    model = model.float()
    plain = diagonal_fisher(model, [batch])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cpu")
        around = diagonal_fisher(model, [batch])
    assert all(torch.equal(around[key], plain[key]) for key in plain)


def test_the_sign_of_a_mask_that_all_samples_fill_is_no_matter() -> None:
    """The library leaves such masks out, by looking at them; no other look at values is taken for harmless."""
    model, batch = batch_for("BERT, classes", 6)
    batch["attention_mask"][:] = 1
    first = diagonal_fisher(model, [batch])
    assert first.strategy == "hooks"
    assert_close(first, by_own_loss(model, batch, "classes"), 1e-6)
    batch["attention_mask"][4:, 3:] = 0  # not among the two that are checked
    later = diagonal_fisher(model, [batch], chunk_size=3)
    assert later.strategy == "hooks"
    assert_close(later, by_own_loss(model, batch, "classes"), 1e-6)


class Peeking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = bert(type(MODELS["BERT, classes"].make()))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits if bool(attention_mask.all()) else 2 * logits


def test_a_look_at_a_mask_by_anybody_else_is_not_harmless() -> None:
    torch.manual_seed(0)
    batch = MODELS["BERT, classes"].draw(4)
    logging.getLogger("tmln.curvature").disabled = True
    try:
        assert diagonal_fisher(Peeking(), [batch]).strategy == "loop"
    finally:
        logging.getLogger("tmln.curvature").disabled = False


# Labels


def test_drawn_tokens_estimate_the_true_fisher() -> None:
    """For the last layer's bias, p(1-p) summed over the positions that predict something."""
    torch.manual_seed(0)
    model = bert(type(MODELS["BERT, masked tokens"].make())).double()
    one = hidden(1)
    many = {key: value.expand(4000, -1) for key, value in one.items()}
    fisher = diagonal_fisher(model, [many], targets="sampled")
    model.eval()
    inputs = {key: value for key, value in one.items() if key != "labels"}
    p = model(**inputs).logits.softmax(-1).detach()[0][one["labels"][0] != -100]
    expected = (p * (1 - p)).sum(0)  # positions are independent: their covariances are 0
    torch.testing.assert_close(fisher["cls.predictions.bias"], expected, rtol=0.15, atol=0)


def test_drawn_tokens_of_a_causal_model_move_by_one() -> None:
    """A model that is sure of its next token draws just that one, at the place after the one that predicts it."""
    torch.manual_seed(0)
    model, batch = gpt2().double(), continued(5)
    with torch.no_grad():
        model.get_parameter("transformer.ln_f.weight").mul_(1000.0)
    model.eval()
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    sure = model(**inputs).logits.argmax(-1)
    labels = torch.cat([batch["labels"][:, :1], sure[:, :-1]], 1).masked_fill(batch["labels"] == -100, -100)
    given = diagonal_fisher(model, [inputs | {"labels": labels}])
    drawn = diagonal_fisher(model, [batch], targets="sampled")
    without = diagonal_fisher(model, [inputs], targets="sampled")  # what is not attended to is not drawn either
    assert all(torch.equal(drawn[key], without[key]) for key in drawn)
    for key in given:
        torch.testing.assert_close(drawn[key], given[key], rtol=1e-6, atol=1e-9)


def test_a_vocabulary_as_long_as_the_text_is_no_riddle_for_a_known_model() -> None:
    torch.manual_seed(0)
    model, ids = gpt2().double(), torch.randint(3, 23, (3, 16))
    model.resize_token_embeddings(16)  # type: ignore[operator]
    batch = {"input_ids": ids % 16, "labels": ids % 16}
    assert_close(diagonal_fisher(model, [batch]), by_own_loss(model, batch, "tokens"), 1e-6)


@pytest.mark.parametrize(
    ("name", "wrong"), [("GPT-2", "masked-tokens"), ("GPT-2", "classes"), ("BERT, classes", "tokens")]
)
def test_a_name_that_is_not_the_models_own_loss(name: str, wrong: str) -> None:
    model, batch = batch_for(name, 3)
    with pytest.raises(ValueError, match=f"reads its labels as '{MODELS[name].name}', not '{wrong}'"):
        diagonal_fisher(model, [batch], log_likelihood=wrong)


def test_a_batch_without_labels() -> None:
    model, batch = batch_for("GPT-2", 3)
    del batch["labels"]
    with pytest.raises(ValueError, match="a dict batch needs one of labels"):
        diagonal_fisher(model, [batch])


def test_wrappers_are_looked_through() -> None:
    from tmln.curvature.likelihoods import read_hf_task

    torch.manual_seed(0)
    wrapped = lora(llama(), "CAUSAL_LM")
    assert read_hf_task(wrapped) == read_hf_task(llama())
    assert read_hf_task(nn.Linear(2, 2)) is None
