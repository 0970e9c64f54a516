package proc

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what the figures were measured on.
type Machine struct {
	CPU    string
	Cores  int
	Memory int64 // bytes
	Kernel string
}

// ThisMachine reads /proc. What cannot be read is "unknown" or 0.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown"}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory, _ = parseKB(string(raw), "MemTotal:")
	}
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(raw))
	}
	return m
}

// String is one line for the head of a report.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.1f GiB memory, Linux %s", m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Kernel)
}
