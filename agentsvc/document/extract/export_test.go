package extract

import (
	"os"
	"time"

	"stoa/agentsvc/document"
)

// LimitProcess is limitProcess, for helpers of tests.
var LimitProcess = limitProcess

// MaxDataBytes is the bound of a helper's private memory.
const MaxDataBytes = maxDataBytes

// ReadContent reads in this process with the default limits.
func ReadContent(name, mediaType string, data []byte) (document.Content, error) {
	return readContent(name, mediaType, data, defaultLimits)
}

// SetHelper makes r start helpers with another value of HelperVariable and another time limit.
func (r *Reader) SetHelper(variable string, timeout time.Duration) {
	r.variable, r.timeout = variable, timeout
	r.untrusted = func() bool { return false }
}

// SetHelperVariable makes r start helpers with another value of HelperVariable.
func (r *Reader) SetHelperVariable(variable string) { r.variable = variable }

// OnStart makes r call started with each helper and the app that it works for.
func (r *Reader) OnStart(started func(app string, p *os.Process)) { r.started = started }

// CanRunUntrusted reports whether helpers run as another user.
func (r *Reader) CanRunUntrusted() bool { return r.untrusted() }
