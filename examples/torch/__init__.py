"""Programs for PyTorch on an npu, written as for an Ascend: they run on one, and on AnyCANN.

| program | what it shows |
| --- | --- |
| `python -m examples.torch.train_resnet` | ResNet-50 on CIFAR-10: DDP (with torchrun), mixed precision, graph mode, checkpoints |
| `python -m examples.torch.finetune_bert` | a BERT encoder, trained for a task of two classes |
| `python -m examples.torch.clip` | CLIP: a picture is named by the text that fits it best |
| `python -m examples.torch.infer` | inference on whichever device is there, measured, with a way back to the host |

Without an installed AnyCANN: `eval "$(anycann env)"` first, so that `torch_npu` is found.
"""
