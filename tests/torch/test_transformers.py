"""Models of transformers, and accelerate, find torch_npu by themselves and run on the npu as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[test]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, 99, shape)


def test_transformers_and_accelerate_see_the_npu() -> None:
    from accelerate.utils import is_npu_available
    from transformers.utils import is_torch_npu_available

    assert is_torch_npu_available()
    assert is_npu_available()


def test_bert_trains_as_on_the_cpu() -> None:
    config = transformers.BertConfig(**SMALL, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    batch = {"input_ids": tokens(2, 7), "attention_mask": torch.ones(2, 7, dtype=torch.long), "labels": torch.tensor([0, 1])}
    losses = {}
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for device in ("cpu", "npu"):
        model.load_state_dict(start)
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses[device] = [_step(model, optimizer, {name: value.to(device) for name, value in batch.items()}) for _ in range(3)]
    assert losses["npu"] == pytest.approx(losses["cpu"], rel=1e-4)


def _step(model: Any, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> float:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def test_llama_generates_what_it_does_on_the_cpu() -> None:
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, pad_token_id=0, eos_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    prompt = tokens(2, 5)
    expected = model.generate(prompt, max_new_tokens=8, do_sample=False)
    there = model.to("npu")
    assert torch.equal(there.generate(prompt.npu(), max_new_tokens=8, do_sample=False).cpu(), expected)
    assert there.generate(prompt.npu(), max_new_tokens=4, do_sample=True, num_beams=2).shape == (2, 9)
    there.train()
    there(input_ids=prompt.npu(), labels=prompt.npu()).loss.backward()
    assert all(parameter.grad is not None for parameter in there.parameters())


def test_clip_compares_pictures_and_words() -> None:
    vision = {name: value for name, value in SMALL.items() if name != "vocab_size"} | {"image_size": 32, "patch_size": 8}
    model = transformers.AutoModel.from_config(transformers.CLIPConfig(text_config=SMALL, vision_config=vision, projection_dim=16)).eval()
    words, pictures = tokens(2, 7), torch.randn(3, 3, 32, 32)
    expected = model(input_ids=words, pixel_values=pictures).logits_per_image
    got = model.to("npu")(input_ids=words.npu(), pixel_values=pictures.npu()).logits_per_image
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_the_trainer_and_the_accelerator_choose_the_npu(tmp_path: Path) -> None:
    from accelerate import Accelerator

    config = transformers.BertConfig(**SMALL, num_labels=3)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    rows = [{"input_ids": tokens(7), "labels": torch.tensor(1)} for _ in range(8)]
    options = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=2, max_steps=3, report_to=[], save_strategy="no", disable_tqdm=True
    )
    result = transformers.Trainer(model=model, args=options, train_dataset=rows).train()
    assert model.device == torch.device("npu:0")
    assert result.training_loss > 0
    module, optimizer = torch.nn.Linear(4, 2), None
    accelerator = Accelerator()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module, optimizer = accelerator.prepare(module, optimizer)
    loss = module(torch.randn(3, 4, device=accelerator.device)).sum()
    accelerator.backward(loss)
    optimizer.step()
    assert loss.is_npu
