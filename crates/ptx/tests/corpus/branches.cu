// A dense switch becomes a branch table; loops with early exits; predicates.

extern "C" __global__ void interpret(const int *code, int *stack, int length) {
    int top = 0;
    for (int at = 0; at < length; ++at) {
        switch (code[at]) {
        case 0: stack[top++] = code[++at]; break;
        case 1: --top; stack[top - 1] += stack[top]; break;
        case 2: --top; stack[top - 1] -= stack[top]; break;
        case 3: --top; stack[top - 1] *= stack[top]; break;
        case 4: --top; stack[top - 1] /= stack[top]; break;
        case 5: stack[top] = stack[top - 1]; ++top; break;
        case 6: --top; if (stack[top] == 0) { at = code[at + 1]; } else { ++at; } break;
        case 7: at = code[at + 1] - 1; break;
        case 8: return;
        case 9: stack[top - 1] = -stack[top - 1]; break;
        case 10: stack[top - 1] = __ffs(stack[top - 1]); break;
        case 11: __trap(); break;
        case 12: __brkpt(); break;
        default: stack[0] = -1; return;
        }
    }
}

extern "C" __global__ void collatz(unsigned long long *values) {
    unsigned long long value = values[threadIdx.x], steps = 0;
#pragma unroll 1
    while (value != 1 && steps < 1000) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        ++steps;
    }
    values[threadIdx.x] = steps;
}
