"""The training loop: Hugging Face's Trainer, fed with whole optimizer steps from batch folders."""

import contextlib
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments

from .contract import Batch, Config, Preempted, Refused, read_json, write_json
from .feed import Feed, Position, Step
from .journal import Journal, weights_folder
from .losses import denominators, loss_of
from .packing import collate, pack_attention, split_rows
from .publish import publish
from .schedule import learning_rate
from .value import export_onnx, load_value_model

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def run(folder: Path, config: Config, stopping: Callable[[], bool]) -> None:
    """Trains the job in `folder` from its last checkpoint to its end.

    Raises Preempted after a checkpoint when `stopping`, Refused for wrong data, TimeoutError when a batch
    folder does not come.
    """
    try:
        model = load_model(config)
    except (OSError, ValueError) as error:
        raise Refused(f"trainer.json: model: {config.model}: {str(error).splitlines()[0]}") from error
    trainer = OrchardTrainer(folder, config, model, stopping)
    checkpoint = last_checkpoint(folder / "checkpoints")
    if checkpoint is not None:
        trainer.position = Position(**read_json(checkpoint / "position.json"))
        if (folder / "state.json").exists():
            trainer.version = read_json(folder / "state.json")["version"]
    trainer.journal.rewind(trainer.position.step)
    trainer.journal.event(
        "started", step=trainer.position.step, checkpoint=checkpoint and str(checkpoint), processes=trainer.args.world_size
    )
    try:
        if checkpoint is not None and trainer.owes():
            trainer.publish_from(checkpoint)
        if not trainer.finished:
            trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    except Preempted:
        if trainer.position.step > 0:
            trainer._save_checkpoint(trainer.model_wrapped, None)
        raise
    finally:
        trainer.accelerator.end_training()  # processes that leave a group open abort at exit
    if not trainer.finished:
        raise Preempted


def load_model(config: Config) -> PreTrainedModel:
    """Raises OSError or ValueError for a folder without a model that can be trained."""
    if config.task == "value":
        return load_value_model(config.model, config.seed)
    return AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)


def quantiles(ratios: list[torch.Tensor]) -> dict[str, float]:
    """Of the ratio between trainer and sampler, over the tokens that this process saw."""
    if not ratios or sum(map(len, ratios)) == 0:
        return {}
    found = np.quantile(torch.cat(ratios).cpu().numpy(), (0.01, 0.5, 0.99))
    return {f"ratio_{name}": float(value) for name, value in zip(("p01", "p50", "p99"), found, strict=True)}


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the highest step among the complete ones."""
    complete = [path.parent for path in folder.glob("checkpoint-*/position.json")]
    return max(complete, key=lambda path: int(path.name.split("-")[1]), default=None)


class OrchardTrainer(Trainer):
    """One item of the data loader is one optimizer step, so that a step can have any number of forward passes."""

    def __init__(self, folder: Path, config: Config, model: torch.nn.Module, stopping: Callable[[], bool]):
        arguments = TrainingArguments(
            # Checkpoints are written here and renamed into place when they are complete.
            output_dir=str(folder / "checkpoints" / ".partial"),
            max_steps=sys.maxsize,  # the feed ends the job
            learning_rate=config.learningRate,
            lr_scheduler_type="constant",  # training_step sets the rate: only the feed knows the length of the job
            weight_decay=config.weightDecay,
            adam_beta1=config.betas[0],
            adam_beta2=config.betas[1],
            optim="adamw_torch_fused",
            max_grad_norm=config.maxGradNorm,
            bf16=config.precision == "bf16",
            use_cpu=not torch.cuda.is_available(),
            seed=config.seed,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="steps",
            save_steps=config.checkpointEverySteps,
            ignore_data_skip=True,  # the feed starts at the checkpoint's position
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
            report_to="none",
        )
        arguments._n_gpu = min(arguments.n_gpu, 1)  # one process, one GPU: no DataParallel behind our back
        super().__init__(model, arguments)
        self.folder, self.config, self.stopping = folder, config, stopping
        self.journal = Journal(folder, writes=self.is_world_process_zero())
        self.position = Position()
        self.version: str | None = None  # published last
        self.finished = False
        self._packs = pack_attention(model)
        # Logits of the trained places only: the head and the softmax cost as much as a layer or more.
        head = model.score if config.task == "value" else model.get_output_embeddings()
        head.register_forward_pre_hook(lambda _, inputs: inputs[0].flatten(0, 1)[self._select])

    def agree(self, yes: bool) -> bool:
        """Whether any process says yes."""
        if self.args.world_size == 1:
            return yes
        return self.accelerator.reduce(torch.tensor(float(yes), device=self.args.device)).item() > 0

    def get_train_dataloader(self) -> Feed:
        return Feed(self.config, self.position, self.journal, stopping=self.stopping, agree=self.agree, check=self.check)

    def get_batch_samples(self, epoch_iterator: Iterator[Step], num_batches: int, device: torch.device) -> tuple[list[Step], None]:
        return [next(epoch_iterator)], None  # the library would count labels; a step brings its own denominator

    def check(self, batch: Batch) -> None:
        """Raises Refused for a batch that this model or its loss cannot take."""
        loss_of(batch)
        if (batch.kind == "value") != (self.config.task == "value"):
            raise Refused(f"{batch.folder}/manifest.json: kind: {batch.kind} does not fit trainer.json: task: {self.config.task}")
        shape = self.model.config
        if max(batch.lengths) > shape.max_position_embeddings:
            raise Refused(
                f"{batch.folder}: row {batch.lengths.index(max(batch.lengths))} has {max(batch.lengths)} tokens, the model's context is {shape.max_position_embeddings}"
            )
        for row in range(len(batch.lengths)):
            ids = batch.row(row, "ids")
            if len(ids) == 0 or ids.min() < 0 or ids.max() >= shape.vocab_size:
                raise Refused(f"{batch.folder}: ids of row {row} are empty or outside the model's vocabulary of {shape.vocab_size}")

    def training_step(self, model: torch.nn.Module, step: Step, num_items_in_batch=None) -> torch.Tensor:
        """Gradients of one optimizer step; returns this process's part of the loss, times the number of processes."""
        self._started, self._step = time.perf_counter(), step
        self._rate = learning_rate(self.config, self.state.global_step, step.of)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate
        model.train()
        batch, loss = step.batch, loss_of(step.batch)
        # DistributedDataParallel averages gradients; the loss is a sum over processes.
        scales = {name: self.args.world_size / total for name, total in denominators(batch, step.rows).items()}
        each = self.args.world_size / (sum(batch.trained(row) for row in step.rows) or 1)
        pass_tokens = self.config.microTokens if self._packs else 0
        mine = split_rows(step.rows, batch.lengths, pass_tokens, self.args.world_size)[self.args.process_index]
        total = torch.zeros((), device=self.args.device)
        self._stats: dict[str, torch.Tensor] = {}
        self._ratios: list[torch.Tensor] = []
        for number, rows in enumerate(mine, 1):
            micro = collate(batch, rows, loss.streams(batch.params), self.args.device)
            self._select = micro.select
            with contextlib.nullcontext() if number == len(mine) else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    packed = {"lengths": micro.lengths} if self._packs else {}
                    logits = model(input_ids=micro.ids, position_ids=micro.positions, use_cache=False, **packed).logits
                logits = logits.float() if batch.temperature == 1 else logits.float() / batch.temperature
                result = loss.values(logits, micro, batch.params)
                part = sum((term.values * term.weight).sum() * scales[name] for name, term in result.terms.items())
                self.accelerator.backward(part)
            total += part.detach()
            for name, value in result.stats.items():
                mean = (value * result.terms["distill"].weight).sum() * scales["distill"] if name == "distill" else value.sum() * each
                self._stats[name] = self._stats.get(name, 0) + mean
            if result.ratio is not None:
                self._ratios.append(result.ratio)
        return total

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Ends an optimizer step: its line, the published weights, the job's end. A checkpoint comes after it."""
        if "grad_norm" not in logs:
            return  # the library's closing summary
        step = self._step
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs[name]):
                raise FloatingPointError(f"step {step.after.step}: {name} is {logs[name]}; the last checkpoint is sound, a lower learning rate may help")
        self.position = step.after
        seconds = time.perf_counter() - self._started
        tokens = sum(step.batch.lengths[row] for row in step.rows)
        self.journal.step(
            step=step.after.step,
            of=step.of,
            batch=int(step.batch.folder.name.split("_")[1]),
            epoch=step.epoch,
            loss=logs["loss"],
            learning_rate=self._rate,
            grad_norm=logs["grad_norm"],
            tokens=tokens,
            trained_tokens=step.after.trained_tokens,
            tokens_per_s=round(tokens / seconds, 1),
            seconds=round(seconds, 4),
            **{name: self.accelerator.reduce(value).item() / self.args.world_size for name, value in self._stats.items()},
            **quantiles(self._ratios),
        )
        if step.last or (step.ends_batch and step.after.batch % self.config.publishEvery == 0):
            # A published version has been checkpointed: whoever is killed in between publishes it on the way back.
            if step.last or step.after.step % self.config.checkpointEverySteps == 0:
                self._save_checkpoint(self.model_wrapped, None)
            self.finished = step.last
            self._publish()
        if step.last:
            self.control.should_training_stop = True
        elif self.agree(self.stopping()):
            self.control.should_save = self.control.should_training_stop = True

    def _publish(self, state: dict[str, torch.Tensor] | None = None) -> None:
        version = self._next_version()
        if state is None:
            state = self.accelerator.get_state_dict(self.model_wrapped)
        if self.is_world_process_zero():
            publish(
                state,
                self.model,
                weights_folder(self.folder, version),
                base=Path(self.config.model),
                version=version,
                dtype=DTYPES[self.config.precision],
                also=self._export if self.config.onnx else None,
            )
        self.accelerator.wait_for_everyone()
        self.version = version
        self._write_state()
        self.journal.published(self.position.step, version)

    def _export(self, folder: Path) -> None:
        export_onnx(folder, base=self.config.model)

    def owes(self) -> bool:
        """Whether the last checkpoint has trained a batch whose weights were not published before the process died."""
        at = self.position
        if at.batch == 0 or at.batch_step > 0:
            return False
        self.finished = self.finished or at.batch >= self.config.steps
        due = self.finished or at.batch % self.config.publishEvery == 0
        return due and not (weights_folder(self.folder, self._next_version()) / "STABLE").exists()

    def publish_from(self, checkpoint: Path) -> None:
        """Publishes the weights of a checkpoint as they were trained."""
        state = {name: tensor for file in sorted(checkpoint.glob("model*.safetensors")) for name, tensor in load_file(file).items()}
        self._publish(state)

    def _next_version(self) -> str:
        number = self.position.batch if self.position.batch_step == 0 else self.position.batch + 1
        return f"{self.config.versionPrefix}@v_{number:06d}"

    def _write_state(self) -> None:
        if self.is_world_process_zero():
            write_json(self.folder / "state.json", {**self.position.json(), "version": self.version, "finished": self.finished})

    def _save_checkpoint(self, model: torch.nn.Module, trial) -> None:
        """Writes everything to the side and renames it: a checkpoint is complete or it is not there."""
        name = f"checkpoint-{self.position.step}"
        final = self.folder / "checkpoints" / name
        if final.exists():
            return
        partial = Path(self.args.output_dir)
        first = self.is_world_process_zero()
        if first:
            shutil.rmtree(partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if first:
            write_json(partial / name / "position.json", self.position.json())
            (partial / name).rename(final)
            self._write_state()
            kept = sorted(final.parent.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
            for old in kept[: -self.config.keepCheckpoints]:
                shutil.rmtree(old)
        self.journal.event("checkpoint", step=self.position.step, path=str(final))

    def floating_point_ops(self, inputs: Step) -> int:
        return 0  # the library would guess from keys that a step does not have
