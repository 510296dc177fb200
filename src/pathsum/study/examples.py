"""A worked call of every reading, with what it prints: part of its docstring and of its section in the documentation.

Each runs in a second on a model that ships, and prints one line a call, so that page and docstring show the same.
"""

OPENED = """>>> model = pathsum.open("two-layer-small")
"""
TEXT = (
    OPENED
    + """>>> text = "The old dogs ran to the old house, and the old dogs slept. " * 20
"""
)

EXAMPLES: dict[str, str] = {
    "describe": OPENED
    + """>>> paths = pathsum.describe(model).frame.filter(group="paths from the embedding")
>>> print(dict(zip(paths["name"], paths["value"])))
{'order 0': 1.0, 'order 1': 8.0, 'order 2': 16.0, 'total': 25.0}
""",
    "reconstruction": OPENED
    + """>>> errors = pathsum.reconstruction(model, text="the cat sat on the mat, the cat sat").frame
>>> print(errors.filter(dtype="float64")["error"].max() < 1e-12)
True
""",
    "bigrams": """>>> text = "The old dogs ran to the old house, and the old dogs slept. " * 20
>>> (row,) = pathsum.bigrams(pathsum.open("zero-layer"), text=text).rows()
>>> print(f"{row['bigram_entropy']:.2f} + {row['kl']:.2f} = {row['direct_path_loss']:.2f}")
0.17 + 4.20 = 4.37
""",
    "bigram_pairs": """>>> text = "the man and the sea, and the boat, and the wind"
>>> (row,) = pathsum.bigram_pairs(pathsum.open("zero-layer"), text=text, count=1).rows()
>>> print([row["first"], row["second"]], row["count"], round(row["direct_log_probability"], 1))
[' and', ' the'] 3 -2.8
""",
    "spectra": OPENED
    + """>>> row = max(pathsum.spectra(model).rows(), key=lambda row: row["copying_score"])
>>> print(row["head"], f"copying {row['copying_score']:.2f}, own-token rank {row['own_token_rank']:.2f}")
L1H1 copying 0.59, own-token rank 0.14
""",
    "eigenvalues": OPENED
    + """>>> rows = pathsum.eigenvalues(model).frame.filter(head="L1H1", circuit="OV").rows(named=True)
>>> values = [complex(row["real"], row["imaginary"]) for row in rows]
>>> print(len(values), f"copying {sum(values).real / sum(map(abs, values)):.2f}")
32 copying 0.59
""",
    "taps": """>>> import torch
>>> layer, eye = pathsum.Attention(smeared_keys=True), torch.eye(4)
>>> spec = pathsum.Spec(4, n_ctx=8, d_model=4, n_layers=1, n_heads=1, d_head=4, n_key_value_heads=1, layers=(layer,))
>>> heads = {f"L0.W_{part}": eye[None] for part in "QKVO"}
>>> model = pathsum.open({"W_E": eye, "W_U": eye, "L0.smear": torch.tensor([-2.0]), **heads}, config=spec)
>>> rows = pathsum.taps(model).frame.filter(circuit="QK").rows(named=True)
>>> print([(row["query_tap"], row["key_tap"], round(row["weight"], 2), round(row["score"], 2)) for row in rows])
[(0, 0, 0.12, 1.0), (0, 1, 0.88, 1.0)]
""",
    "composition": OPENED
    + """>>> row = pathsum.composition(model).rows()[0]
>>> print(row["kind"], row["source"], row["destination"], f"effect {row['effect']:.3f}, z {row['z']:.0f}")
K L0H0 L1H1 effect 0.053, z 33
""",
    "matching": OPENED
    + """>>> row = pathsum.matching(model, z=20).rows()[0]
>>> print(row["source"], row["destination"], f"{row['matching_score']:.2f}")
L0H0 L1H1 0.98
""",
    "attention": TEXT
    + """>>> row = max(pathsum.attention(model, text=text).rows(), key=lambda row: row["previous_token"])
>>> print(row["head"], f"{row['previous_token']:.2f}")
L0H0 0.89
""",
    "positional": OPENED
    + """>>> rows = pathsum.positional(model).frame.filter(head="L0H0").rows(named=True)
>>> print("looks most at lag", max(rows, key=lambda row: row["score"])["lag"])
looks most at lag 1
""",
    "pointer": """>>> row = pathsum.pointer(pathsum.toys.pointer_model()).rows()[0]
>>> print(row["source"], row["destination"], row["share_next"], row["offset"])
L0H0 L1H1 1.0 1
""",
    "induction": TEXT
    + """>>> heads = pathsum.induction(model, text=text, context=48, block=32, batch=2).frame
>>> (row,) = heads.filter(is_induction_head=True).rows(named=True)
>>> tests = [round(row[name], 1) for name in ("prefix_matching", "copying", "causal_effect")]
>>> print(row["head"], row["partner"], tests)
L1H1 L0H0 [0.6, 4.8, 2.3]
""",
    "repeats": OPENED
    + """>>> rows = pathsum.repeats(model, block=64, batch=4).rows()
>>> print({row["copy"]: round(row["loss"], 1) for row in rows})
{1: 11.2, 2: 9.1, 3: 9.0}
""",
    "in_context": TEXT
    + """>>> (row,) = pathsum.in_context(model, text=text, context=48).rows()
>>> print(row["early_token"], row["late_token"], f"{row['score']:.2f} ± {row['error']:.2f}")
4 48 -0.48 ± 0.07
""",
    "loss_by_position": TEXT
    + """>>> rows = pathsum.loss_by_position(model, text=text, context=48).rows()
>>> print([(row["compared"], row["token"], round(row["loss"], 1)) for row in rows if row["compared"]])
[('early', 4, 1.9), ('late', 48, 1.5)]
""",
    "importance": TEXT
    + """>>> rows = pathsum.importance(model, text=text, context=48).rows()
>>> print({row["order"]: round(row["loss"], 1) for row in rows})
{-1: 6.9, 0: 6.0, 1: 4.0, 2: 2.9}
""",
    "importance_layers": TEXT
    + """>>> rows = pathsum.importance_layers(model, text=text, context=48).rows()
>>> print({row["layer"]: round(row["cost_without"], 1) for row in rows})
{'L0': 0.7, 'L1': 1.7}
""",
    "importance_heads": TEXT
    + """>>> rows = pathsum.importance_heads(model, text=text, context=48).rows()
>>> row = max(rows, key=lambda row: row["cost_without"])
>>> print(row["head"], f"alone {row['gain_individual']:.2f}, with all that end in it {row['gain_ending']:.2f}")
L1H1 alone 0.39, with all that end in it 1.30
""",
    "importance_sources": TEXT
    + """>>> rows = pathsum.importance_sources(model, text=text, context=48).rows()
>>> print([(row["kind"], row["order"], round(row["gain_alone"], 1)) for row in rows])
[('embed', 0, 0.9), ('embed', 1, 2.7), ('embed', 2, 2.4)]
""",
    "importance_paths": TEXT
    + """>>> row = pathsum.importance_paths(model, text=text, context=48).rows()[0]
>>> print(row["path"], f"{row['cost_without']:.2f}")
embed → L0H3 → L1H1 0.25
""",
    "virtual": TEXT
    + """>>> row = pathsum.virtual(model, text=text, context=48).rows()[0]
>>> print(row["source"], row["destination"], f"cost {row['cost_without']:.2f}, copying {row['copying_score']:.2f}")
L0H3 L1H1 cost 0.25, copying 0.96
""",
    "carried": TEXT
    + """>>> rows = pathsum.carried(model, text=text, context=48).rows()
>>> print({row["source"]: round(row["variance_share"], 2) for row in rows})
{'embed': 0.12, 'embed through heads': 0.88}
""",
    "entries": OPENED
    + """>>> (row,) = pathsum.entries(model, count=1).frame.filter(head="L0H1", circuit="OV").rows(named=True)
>>> print([row["source"], row["row"]], f"{row['value']:.1f}")
[' bl', 'ack'] 5.8
""",
    "trigrams": """>>> rows = pathsum.trigrams(pathsum.toys.keep_in_mind_model(), head="L0H0", per_source=4).rows()
>>> print([f"{row['source']} … {row['destination']} → {row['out']} {row['effect']:.0f}" for row in rows[:3]])
['keep … in → mind 35', 'keep … in → bay 32', 'keep … at → mind 27']
""",
    "bugs": """>>> text = "keep it in mind and keep them at bay and " * 2
>>> (row,) = pathsum.bugs(pathsum.toys.keep_in_mind_model(), text=text, count=1).rows()
>>> print(f"{row['source']} … {row['destination']} → {row['out']}", row["source_destination"], row["source_out"])
keep … in → bay 2 2
""",
}
