"""Parameters, FLOPs and bytes against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oppo_sim.costs import attention_pairs, model


def test_qwen_0_5b_by_hand() -> None:
    qwen = model("Qwen2.5-0.5B")
    # one layer: query and output 896 x 896, key and value 896 x 128, biases 896 + 2 * 128,
    # gate, up and down 896 x 4864, two norms of 896
    layer = 2 * 896 * 896 + 2 * 896 * 128 + (896 + 2 * 128) + 3 * 896 * 4864 + 2 * 896
    assert layer == 14_912_384
    assert qwen.non_embedding_params == 24 * layer + 896 == 357_898_112
    assert qwen.embedding_params == 151_936 * 896 == 136_134_656
    assert qwen.params() == 357_898_112 + 136_134_656 == 494_032_768  # tied
    assert qwen.forward_flop("scalar") == 2 * 357_898_112
    assert qwen.forward_flop("vocab") == 2 * 357_898_112 + 2 * 151_936 * 896 == 988_065_536
    assert qwen.pair_flop == 4 * 24 * 896 == 86_016
    assert qwen.kv_bytes == 2 * 24 * 2 * 64 * 2 == 12 * 1024


def test_qwen_7b_by_hand() -> None:
    qwen = model("Qwen2.5-7B")
    layer = 2 * 3584 * 3584 + 2 * 3584 * 512 + (3584 + 2 * 512) + 3 * 3584 * 18944 + 2 * 3584
    assert qwen.non_embedding_params == 28 * layer + 3584 == 6_525_621_760
    table = 152_064 * 3584
    assert qwen.params("vocab") == 6_525_621_760 + 2 * table == 7_615_616_512  # not tied
    assert qwen.params("scalar") == 6_525_621_760 + table
    assert qwen.read_bytes("vocab") == 2 * (6_525_621_760 + table)
    assert qwen.read_bytes("scalar") == 2 * 6_525_621_760
    assert qwen.weights_bytes() == 2 * 7_615_616_512
    assert qwen.kv_bytes == 56 * 1024


@pytest.mark.parametrize(
    ("name", "params", "non_embedding", "kv_kib"),
    [
        ("Qwen2.5-0.5B", 0.494, 0.358, 12),
        ("Qwen2.5-1.5B", 1.544, 1.310, 28),
        ("Qwen2.5-3B", 3.086, 2.775, 36),
        ("Qwen2.5-7B", 7.616, 6.526, 56),
    ],
)
def test_shapes_give_the_published_sizes(
    name: str, params: float, non_embedding: float, kv_kib: int
) -> None:
    qwen = model(name)
    assert qwen.params() / 1e9 == pytest.approx(params, abs=5e-4)
    assert qwen.non_embedding_params / 1e9 == pytest.approx(non_embedding, abs=5e-4)
    assert qwen.kv_bytes == kv_kib * 1024


def test_chunks_attend_to_as_much_as_the_whole_row() -> None:
    chunks = [(0, 256), (256, 512), (512, 700)]
    assert sum(attention_pairs(*chunk) for chunk in chunks) == attention_pairs(0, 700) == 245_000


def test_a_shape_refuses_what_no_model_has() -> None:
    qwen = model("Qwen2.5-7B")
    with pytest.raises(ValueError, match=r"model Qwen2.5-7B.layers is 0; .* at least 1"):
        replace(qwen, layers=0)
    with pytest.raises(ValueError, match=r"hidden is 3584.5; it must be a whole number"):
        replace(qwen, hidden=3584.5)
    with pytest.raises(ValueError, match=r"kv_heads is 5; it must divide heads \(28\)"):
        replace(qwen, kv_heads=5)
    with pytest.raises(ValueError, match=r"qkv_bias is 'yes'; it must be true or false"):
        replace(qwen, qkv_bias="yes")
