"""LoRA by Hugging Face's Trainer, one task after another: TMLN, replay, and a check of what is kept."""

import tempfile

import torch
from peft import LoraConfig, get_peft_model

import tmln
from tmln.integrations.transformers import Continual, RetentionCallback
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, default_data_collator

SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 4}


def texts(task: int, count: int = 96) -> list[dict[str, torch.Tensor]]:
    """Ten words of each class; a task has two classes, and a length of its own."""
    labels = torch.arange(count) % 2 + 2 * task
    words = 10 * (labels[:, None] + 1) + torch.randint(10, (count, 8 + task))
    masks = torch.ones_like(words)
    return [{"input_ids": words[k], "attention_mask": masks[k], "labels": labels[k]} for k in range(count)]


def main(epochs: int = 6) -> list[float]:
    torch.manual_seed(0)
    bert = BertForSequenceClassification(BertConfig(**SIZES, initializer_range=0.3))
    model = get_peft_model(bert, LoraConfig(task_type="SEQ_CLS", r=8))
    continual, check = Continual(memory=100), RetentionCallback({"first": texts(0), "second": texts(1)})
    with tempfile.TemporaryDirectory() as folder:
        options = {"num_train_epochs": epochs, "max_grad_norm": 0.0, "save_strategy": "no", "report_to": "none"}
        args = TrainingArguments(folder, use_cpu=True, disable_tqdm=True, logging_strategy="no", **options)
        for task in range(2):
            Trainer(
                model, args, train_dataset=texts(task), data_collator=continual.collator(default_data_collator),
                callbacks=[continual, *([check] if task else [])], optimizer_cls_and_kwargs=(tmln.TMLN, {"lr": 0.05}),
            ).train()  # fmt: skip
    return [values["accuracy"] for values in check.retention.readings[-1].values()]


if __name__ == "__main__":
    main()
