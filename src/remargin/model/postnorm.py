"""The encoder that BERT, RoBERTa, XLM-R, ELECTRA, DistilBERT and MPNet share, over padding-free batches.

They differ in the names of their parts, in an offset of positions, in where dropout is, and in MPNet's relative bias of
positions; else they are one architecture: embeddings, then layers of attention and feed-forward, each with a LayerNorm
behind it. Here it is once more, from transformers' weights: without padding, with one product for queries, keys and
values, and without computing what the pooling does not read. tests/equivalence holds it against transformers' own.

In training, what is added up from layer to layer and its LayerNorms are in float32 whatever the products are in, as
under PyTorch's autocast. Encoding rounds them too, which is faster and changes nothing that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import GELUActivation

from remargin.model.dropping import computed_twice, drop
from remargin.model.lora import LoraLinear
from remargin.model.packing import NO_KERNELS, AttentionDropout, Kernels, Packed, attend

FAMILIES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "mpnet")

Sources = list[tuple[nn.Parameter, list[nn.Parameter]]]


class PostNorm(nn.Module):
    """A copy of an encoder's weights in some precision; `sources` says which of its parameters each one came from."""

    def __init__(
        self,
        backbone: nn.Module,
        dtype: torch.dtype,
        attention_dropout: bool = False,
        kernels: Kernels = NO_KERNELS,
    ) -> None:
        super().__init__()
        self.sources: Sources = []
        model: Any = backbone
        config = model.config
        copy = _Copier(dtype, self.sources)
        embeddings = model.embeddings
        self.word = copy.table(embeddings.word_embeddings)
        self.position = copy.table(embeddings.position_embeddings)
        self.kind = copy.table(types) if (types := getattr(embeddings, "token_type_embeddings", None)) else None
        offset = embeddings.position_embeddings.padding_idx
        self.first_position = 0 if offset is None else offset + 1
        self.embedding_norm = copy.norm(embeddings.LayerNorm)
        self.embedding_dropout = float(embeddings.dropout.p)
        project = getattr(model, "embeddings_project", None)
        self.embedding_projection = None if project is None else copy.linear(project)
        heads = config.num_attention_heads
        if config.model_type == "distilbert":
            self.layers = nn.ModuleList(_distilbert_layer(layer, heads, copy) for layer in model.transformer.layer)
        elif config.model_type == "mpnet":
            self.layers = nn.ModuleList(_mpnet_layer(layer, heads, copy) for layer in model.encoder.layer)
        else:
            self.layers = nn.ModuleList(_bert_layer(layer, heads, copy) for layer in model.encoder.layer)
        for number, layer in enumerate(self.layers):
            layer.number, layer.kernels = number, kernels  # type: ignore[assignment]
            if not attention_dropout:
                layer.weight_dropout = 0.0  # type: ignore[assignment]
        self.relative = copy.table(model.encoder.relative_attention_bias) if config.model_type == "mpnet" else None
        self._bucket: Callable[[Tensor], Tensor] | None = getattr(
            getattr(model, "encoder", None), "relative_position_bucket", None
        )

    @staticmethod
    def fits(backbone: nn.Module) -> bool:
        """Whether an encoder is of these families, and in none of their rarer variants."""
        config: Any = backbone.config
        absolute = getattr(config, "position_embedding_type", None) in (None, "absolute")
        return config.model_type in FAMILIES and absolute and not getattr(config, "is_decoder", False)

    def forward(self, packed: Packed, rows: Tensor | None = None, frugal: bool = False) -> Tensor:
        """Hidden states of all tokens, (T, d), or of some of them; if frugal, layers are computed twice in training."""
        x = F.embedding(packed.ids, self.word, sparse=not packed.ids.is_cuda) + self._positions(packed)
        x = x.float() if self.training else x
        if self.kind is not None:
            x = x + self.kind[0]
        x = drop(self.embedding_norm(x), self.embedding_dropout, self.training)
        if self.embedding_projection is not None:
            x = self.embedding_projection(x.to(self.word.dtype)).to(x.dtype)
        bias = None if self.relative is None else self._relative_bias(self.relative, packed.longest)
        drops = self.training and any(layer.weight_dropout for layer in self.layers)
        seeds = torch.randint(2**31 - 1, (len(self.layers),), device=x.device) if drops else None
        for number, layer in enumerate(self.layers, start=1):
            inputs = (x, packed, bias, seeds, rows if number == len(self.layers) else None)
            x = computed_twice(layer, *inputs) if frugal else layer(*inputs)
        return x

    def _positions(self, packed: Packed) -> Tensor:
        if not packed.ids.is_cuda:
            return F.embedding(packed.positions + self.first_position, self.position)
        # The same as a product: the gradient of a look-up would add thousands of tokens to each of a few rows in turn.
        table = self.position[self.first_position : self.first_position + packed.longest]
        place = torch.arange(len(table), device=table.device)
        return (packed.positions[:, None] == place).to(table.dtype) @ table

    def _relative_bias(self, table: Tensor, length: int) -> Tensor:
        assert self._bucket is not None
        place = torch.arange(length, device=table.device)
        return F.embedding(self._bucket(place[None, :] - place[:, None]), table).permute(2, 0, 1)


class _Layer(nn.Module):
    """Attention and feed-forward, each added to its input and then normalised."""

    def __init__(
        self,
        attention: Sequence[nn.Linear],
        attention_norm: nn.LayerNorm,
        feed_forward: tuple[nn.Linear, nn.Linear],
        norm: nn.LayerNorm,
        activation: Callable[[Tensor], Tensor],
        dropouts: tuple[float, float, float],  # on attention weights, behind the attention, behind the rest
        heads: int,
        copy: _Copier,
    ) -> None:
        super().__init__()
        query, key, value, out = attention
        self.qkv, self.out, self.attention_norm = (
            copy.linear(query, key, value),
            copy.linear(out),
            copy.norm(attention_norm),
        )
        self.up, self.down, self.norm = copy.linear(feed_forward[0]), copy.linear(feed_forward[1]), copy.norm(norm)
        self.dtype = copy.dtype
        self.activation = activation
        self.exact_gelu = isinstance(activation, GELUActivation) and activation.act is F.gelu
        self.number, self.kernels = 0, NO_KERNELS
        self.weight_dropout, self.attention_dropout, self.dropout = dropouts
        self.heads = heads

    def forward(
        self, x: Tensor, packed: Packed, bias: Tensor | None, seeds: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """The next hidden states, of all tokens or of some rows: the keys need all, what follows only these."""
        tokens, width = x.shape
        size = width // self.heads
        qkv = self.qkv(x.to(self.dtype)).view(tokens, 3, self.heads, size)
        share = self.weight_dropout if self.training else 0.0
        dropout = AttentionDropout(share, seeds, self.number)
        context = attend(qkv, packed, size**-0.5, bias, dropout=dropout, kernels=self.kernels).reshape(tokens, width)
        if rows is not None:
            x, context = x[rows], context[rows]
        x = self.attention_norm(x + drop(self.out(context), self.attention_dropout, self.training))
        inner = self.activation(self.up(x.to(self.dtype)))
        return self.norm(x + drop(self.down(inner), self.dropout, self.training))  # type: ignore[no-any-return]


class _Copier:
    """Copies weights into a precision and takes down which parameters they came from."""

    def __init__(self, dtype: torch.dtype, sources: Sources) -> None:
        self.dtype = dtype
        self._sources = sources

    def parameter(self, *masters: Any, dtype: torch.dtype | None = None) -> nn.Parameter:
        """One parameter with the rows of all of them."""
        copied = nn.Parameter(torch.cat([master.detach() for master in masters]).to(dtype or self.dtype, copy=True))
        self._sources.append((copied, list(masters)))
        return copied

    def table(self, embedding: nn.Embedding) -> nn.Parameter:
        return self.parameter(embedding.weight)

    def linear(self, *layers: nn.Linear) -> nn.Linear:
        """One layer that gives the outputs of all of them side by side, each with its low-rank change if it has one."""
        joint = nn.Linear(1, 1, bias=layers[0].bias is not None, device="meta")
        joint.in_features, joint.out_features = layers[0].in_features, sum(layer.out_features for layer in layers)
        joint.weight = self.parameter(*(layer.weight for layer in layers))
        if joint.bias is not None:
            joint.bias = self.parameter(*(layer.bias for layer in layers))
        adapted = [layer for layer in layers if isinstance(layer, LoraLinear)]
        if len(adapted) == len(layers):
            down, up = self.parameter(*(a.lora_a for a in adapted)), self.parameter(*(a.lora_b for a in adapted))
            return LoraLinear.of(joint.weight, joint.bias, down, up, [a.out_features for a in adapted])
        return joint

    def norm(self, layer: nn.LayerNorm) -> _Norm:
        copied = _Norm(layer.normalized_shape, layer.eps, device="meta")
        copied.weight, copied.bias = (self.parameter(own, dtype=torch.float32) for own in (layer.weight, layer.bias))
        return copied


class _Norm(nn.LayerNorm):
    """With weights in float32, for inputs of any precision."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def _bert_layer(layer: Any, heads: int, copy: _Copier) -> _Layer:
    inner, out = layer.attention.self, layer.attention.output
    return _Layer(
        (inner.query, inner.key, inner.value, out.dense),
        out.LayerNorm,
        (layer.intermediate.dense, layer.output.dense),
        layer.output.LayerNorm,
        layer.intermediate.intermediate_act_fn,
        (inner.dropout.p, out.dropout.p, layer.output.dropout.p),
        heads,
        copy,
    )


def _mpnet_layer(layer: Any, heads: int, copy: _Copier) -> _Layer:
    inner, attention = layer.attention.attn, layer.attention
    return _Layer(
        (inner.q, inner.k, inner.v, inner.o),
        attention.LayerNorm,
        (layer.intermediate.dense, layer.output.dense),
        layer.output.LayerNorm,
        layer.intermediate.intermediate_act_fn,
        (inner.dropout.p, attention.dropout.p, layer.output.dropout.p),
        heads,
        copy,
    )


def _distilbert_layer(layer: Any, heads: int, copy: _Copier) -> _Layer:
    inner, feed_forward = layer.attention, layer.ffn
    return _Layer(
        (inner.q_lin, inner.k_lin, inner.v_lin, inner.out_lin),
        layer.sa_layer_norm,
        (feed_forward.lin1, feed_forward.lin2),
        layer.output_layer_norm,
        feed_forward.activation,
        (inner.dropout.p, 0.0, feed_forward.dropout.p),
        heads,
        copy,
    )
