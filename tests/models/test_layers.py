"""Words for layers become numbers."""

import pytest

from layerwise.core.errors import InputError
from layerwise.models.layers import choose_layers


@pytest.mark.parametrize(
    ("choice", "depth", "expected"),
    [
        ("all", 3, (0, 1, 2, 3)),
        ("last", 30, (30,)),
        ("0,6,12", 12, (0, 6, 12)),
        ("25%,50%,100%", 12, (3, 6, 12)),
        ("50%", 3, (1,)),  # 1.5 lies between 1 and 2: the shallower
        ("51%", 3, (2,)),
        ("-1, -2", 12, (11, 12)),
        ("12,0,12", 12, (0, 12)),
        (5, 12, (5,)),
        ([3, "50%"], 12, (3, 6)),
    ],
)
def test_choice(choice, depth, expected):
    assert choose_layers(choice, depth) == expected


@pytest.mark.parametrize("choice", ["13", "-14", "1.5", "some", "", "120%"])
def test_what_names_no_layer_is_refused(choice):
    with pytest.raises(InputError):
        choose_layers(choice, 12)
