package function_test

import (
	"encoding/json"
	"strings"
	"testing"

	"stoa/agentsvc/tool/function"
)

func TestCalculator(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expression, want string
	}{
		{"1 + 2 * 3", "7"},
		{"(1 + 2) * 3", "9"},
		{"10 - 4 - 3", "3"},
		{"100 / 10 / 2", "5"},
		{"0.1 + 0.2", "0.3"},
		{"1 / 3", "0.333333333333333"},
		{"2 / 3 * 3", "2"},
		{"7 % 3", "1"},
		{"-7 % 3", "-1"},
		{"7.5 % 2", "1.5"},
		{"2 ^ 10", "1024"},
		{"2 ** 3 ** 2", "512"},
		{"-2 ^ 2", "-4"},
		{"(-2) ^ 2", "4"},
		{"2 ^ -2", "0.25"},
		{"(-1) ^ 999999999999999999999", "-1"},
		{"1 ^ 999999999999999999999", "1"},
		{"0 ^ 0", "1"},
		{"2 ^ 0.5", "1.4142135623731"},
		{"--1", "1"},
		{"+-+1", "-1"},
		{"123456789 * 987654321", "121932631112635269"},
		{"2 ^ 200", "1606938044258990275541962092341162602522202993782792835301376"},
		{"1e3 + 1.5E-1 + .5 + 1.", "1001.65"},
		{"1_000_000 × 3 ÷ 2", "1500000"},
		{"5 − 7", "-2"},
		{" \t1\n+\r1 ", "2"},
		{"sqrt(16) + abs(-3)", "7"},
		{"sqrt(2)", "1.4142135623731"},
		{"SIN(0) + cos(0)", "1"},
		{"round(2.5) + round(-2.5)", "0"},
		{"round(3.14159, 2)", "3.14"},
		{"floor(-1.5)", "-2"},
		{"ceil(-1.5)", "-1"},
		{"min(3, 1, 2) + max(3, 1, 2)", "4"},
		{"log(1000)", "3"},
		{"log2(8)", "3"},
		{"ln(e)", "1"},
		{"pi", "3.14159265358979"},
		{"1e-30", "1e-30"},
	}
	f := newBuiltin(t, "calculator", function.Options{})
	for _, tt := range tests {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			args, _ := json.Marshal(map[string]string{"expression": tt.expression})
			if got := callTool(t, f, string(args)); got.Text != tt.want || got.Failed {
				t.Errorf("got %q, want %q", got.Text, tt.want)
			}
		})
	}
}

func TestCalculatorRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, expression, want string
	}{
		{"empty", "", "at character 1: expected a number, found the end"},
		{"half", "1 + ", "at character 5: expected a number, found the end"},
		{"twice", "1 2", `at character 3: expected an operator or the end, found "2"`},
		{"open", "(1 + 2", `at character 7: expected ")", found the end`},
		{"closed", "1 + 2)", `at character 6: expected an operator or the end, found ")"`},
		{"operator", "1 + * 2", `at character 5: expected a number, found "*"`},
		{"name", "2 * foo", `at character 5: unknown name "foo"; there are pi, e, abs`},
		{"no parenthesis", "sqrt 4", `at character 6: expected "(", found "4"`},
		{"arguments", "sqrt(1, 2)", "at character 1: sqrt takes 1 argument, not 2"},
		{"decimals", "round(1, 2, 3)", "at character 1: round takes 1 or 2 arguments, not 3"},
		{"no decimals", "round(1, 0.5)", "at character 1: round: the number of decimals must be"},
		{"division", "1 + 1 / (2 - 2)", "at character 7: division by zero"},
		{"remainder", "1 % 0", "at character 3: division by zero"},
		{"power of zero", "0 ^ -1", "at character 3: division by zero"},
		{"root", "sqrt(-1)", "at character 1: sqrt: has no real value there"},
		{"logarithm", "ln(0)", "at character 1: ln: has no real value there"},
		{"fractional power", "(-8) ^ 0.5", "at character 6: has no real value there"},
		{"huge power", "9 ^ 9 ^ 9", "at character 3: the value is too large"},
		{"huge exponent", "2 ^ 99999999999999999999", "at character 3: the value is too large"},
		{"growth", "2^4000 * 2^4000", "at character 8: the value is too large"},
		{"huge number", "1e999999999", "at character 1: the exponent of 1e999999999 is beyond 1000"},
		{"huge negative", "1e-1001", "at character 1: the exponent of 1e-1001 is beyond 1000"},
		{"point", ".", `at character 1: "." is no number`},
		{"unicode", "1 + é", `at character 5: expected a number, found "é"`},
		{"after unicode", "2 × é", `at character 5: expected a number, found "é"`},
		{"code", `__import__("os")`, `at character 1: unknown name "__import__"`},
		{"long", strings.Repeat("1+", 501) + "1", "the expression is longer than 1000 characters"},
		{"deep", strings.Repeat("(", 400) + "1" + strings.Repeat(")", 400), "the expression is nested more than 50 deep"},
		{"deep signs", strings.Repeat("-", 900) + "1", "the expression is nested more than 50 deep"},
		{"deep powers", strings.Repeat("1^", 450) + "1", "the expression is nested more than 50 deep"},
		{"deep calls", strings.Repeat("abs(", 150) + "1" + strings.Repeat(")", 150), "the expression is nested more than 50 deep"},
	}
	f := newBuiltin(t, "calculator", function.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args, _ := json.Marshal(map[string]string{"expression": tt.expression})
			if got := callTool(t, f, string(args)); !got.Failed || !strings.Contains(got.Text, tt.want) {
				t.Errorf("got %q, want %q", got.Text, tt.want)
			}
		})
	}
}

func FuzzCalculator(f *testing.F) {
	for _, seed := range []string{"1+2*3", "((2^-3))%4", "round(pi, 2)", "1e5.e", "−×÷", "max(1,2"} {
		f.Add(seed)
	}
	calc, err := function.New("calculator", function.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		args, _ := json.Marshal(map[string]string{"expression": expression})
		if got := callTool(t, calc, string(args)); strings.Contains(got.Text, "failed with an internal error") || got.Text == "" {
			t.Errorf("%q: %q", expression, got.Text)
		}
	})
}
