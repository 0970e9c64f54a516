package listener

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestAdvise checks the advice for each error of listening.
func TestAdvise(t *testing.T) {
	t.Parallel()
	a := Address{Name: "HTTP", Address: "127.0.0.1:80", PortSetting: "--port (STOA_PORT)", HostSetting: "--host (STOA_HOST)"}
	for _, tt := range []struct {
		err           error
		want, without string
	}{
		{syscall.EADDRINUSE, "another program listens there: stop it, or choose another with --port (STOA_PORT)", "CAP_NET"},
		{syscall.EACCES, "needs the capability CAP_NET_BIND_SERVICE", "another program"},
		{syscall.EADDRNOTAVAIL, "an address of this machine with --host (STOA_HOST)", "STOA_PORT"},
		{errors.New("missing port in address"), "correct --host (STOA_HOST)", "another program"},
	} {
		got := a.Advise(&net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", tt.err)})
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.without) {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
