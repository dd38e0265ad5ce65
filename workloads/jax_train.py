"""A jitted training step in JAX: twenty steps of gradient descent on a small perceptron."""

import os
import tempfile
from collections import Counter
from pathlib import Path

import workload

LAYER_WIDTHS = (256, 1024, 1024, 10)
BATCH, STEPS, LEARNING_RATE = 128, 20, 0.05


def add_xla_flags(*flags):
    """XLA reads its flags once, so this counts only before jax is imported."""
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()


os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
add_xla_flags("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")


def program():
    import jax
    import jax.numpy as jnp
    import numpy

    def initial_parameters(key):
        keys = jax.random.split(key, len(LAYER_WIDTHS) - 1)
        return [
            (jax.random.normal(key, (rows, columns)) / jnp.sqrt(rows), jnp.zeros(columns))
            for key, rows, columns in zip(keys, LAYER_WIDTHS, LAYER_WIDTHS[1:])
        ]

    def loss_of(parameters, inputs, labels):
        *hidden_layers, (last_weights, last_bias) = parameters
        for weights, bias in hidden_layers:
            inputs = jax.nn.gelu(inputs @ weights + bias)
        scores = jax.nn.log_softmax(inputs @ last_weights + last_bias)
        return -jnp.mean(jnp.sum(scores * jax.nn.one_hot(labels, LAYER_WIDTHS[-1]), axis=-1))

    @jax.jit
    def train_step(parameters, inputs, labels):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, labels)
        updated = jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradients)
        return updated, loss

    parameter_key, input_key, label_key = jax.random.split(jax.random.key(0), 3)
    parameters = initial_parameters(parameter_key)
    inputs = jax.random.normal(input_key, (STEPS, BATCH, LAYER_WIDTHS[0]))
    labels = jax.random.randint(label_key, (STEPS, BATCH), 0, LAYER_WIDTHS[-1])
    losses = []
    for step in range(STEPS):
        parameters, loss = train_step(parameters, inputs[step], labels[step])
        losses.append(loss)
    return [numpy.asarray(result).tobytes() for result in [*losses, *jax.tree.leaves(parameters)]]


def profile_with_jax(program):
    """Run `program` under JAX's profiler, with XLA's CUDA graphs off: each kernel that ran is then
    one launch."""
    add_xla_flags("--xla_gpu_enable_command_buffer=")
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as trace_folder:
        jax.profiler.start_trace(trace_folder, profiler_options=options)
        results = program()
        jax.profiler.stop_trace()
        (trace_file,) = Path(trace_folder).rglob("*.xplane.pb")
        trace = jax.profiler.ProfileData.from_file(str(trace_file))
        kernels = count_kernels(trace)
    report = workload.launch_report(f"jax.profiler {jax.__version__}", kernels, Counter())
    return results, report


def count_kernels(trace):
    """Kernels that ran, by name. Only the GPUs' stream lines hold them; other lines are derived."""
    return Counter(
        event.name
        for plane in trace.planes
        if plane.name.startswith("/device:GPU:")
        for line in plane.lines
        if line.name.startswith("Stream #")
        for event in line.events
        if not event.name.startswith(("Memcpy", "Memset"))
    )


if __name__ == "__main__":
    workload.run(program, profile_with_jax)
