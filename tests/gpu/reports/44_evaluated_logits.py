"""How well does a tagger stand noise in its weights? Evaluated by the Trainer at eight levels of noise."""
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments

TAGS, LENGTH, SENTENCES, BATCH = 128, 128, 128, 32
LEVELS = [0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1]


class Sentences(Dataset):
    def __init__(self, count):
        self.tokens = torch.randint(5, 1000, (count, LENGTH))
        self.tags = torch.randint(0, TAGS, (count, LENGTH))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, number):
        return {
            "input_ids": self.tokens[number],
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "labels": self.tags[number],
        }


class Calibration:
    """Only the tags go to the metric; how sure the model was is looked up here afterwards."""

    def __init__(self):
        self.logits = []

    def preprocess(self, logits, labels):
        self.logits.append(logits)
        return logits.argmax(dim=-1)

    def certainty(self, last):
        return torch.stack([one.softmax(-1).amax(-1).mean() for one in self.logits[-last:]]).mean().item()


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions == prediction.label_ids).mean())}


def add_noise(model, level):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=level)


def main():
    config = BertConfig(vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=512, num_labels=TAGS)
    calibration, allocated = Calibration(), []
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_eval_batch_size=BATCH, report_to="none",
                                      disable_tqdm=True)
        trainer = Trainer(
            model=BertForTokenClassification(config), args=arguments, eval_dataset=Sentences(SENTENCES),
            compute_metrics=compute_metrics, preprocess_logits_for_metrics=calibration.preprocess,
        )
        for level in LEVELS:
            add_noise(trainer.model, level)
            metrics = trainer.evaluate()
            certainty = calibration.certainty(SENTENCES // BATCH)
            allocated.append(torch.cuda.memory_allocated())
            print(f"noise {level}: accuracy {metrics['eval_accuracy']:.4f}, certainty {certainty:.4f}")
    half = len(LEVELS) // 2
    rate = (allocated[-1] - allocated[half]) // (len(LEVELS) - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


if __name__ == "__main__":
    main()
