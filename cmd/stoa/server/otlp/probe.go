package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"stoa/agentsvc/egress"
)

// Target is the collector of one signal.
type Target struct {
	Signal string // traces, metrics or logs
	// Endpoint is the collector's address, without a query or credentials.
	Endpoint string
	// Err is why the collector does not accept an export, nil if it does. Its text has nothing of the collector's answer.
	Err error
}

// ProbeTargets sends an export without content to the collector of each signal that the OTEL_* variables select. It returns
// an error for variables with which a server does not start. The exporter of traces sends all of them, since an empty
// request is the same for each signal: headers and certificates that the variables give to metrics or logs alone are not
// sent.
func ProbeTargets(ctx context.Context) ([]Target, error) {
	if err := checkPropagators(); err != nil {
		return nil, err
	}
	if _, err := newProcessSampler(); err != nil {
		return nil, err
	}
	var targets []Target
	for _, signal := range []string{"TRACES", "METRICS", "LOGS"} {
		wanted, err := isSignalExported(signal)
		if err != nil {
			return nil, err
		}
		if !wanted {
			continue
		}
		address := findEndpoint(signal)
		u, err := url.Parse(address)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("the OTLP endpoint of %s is no URL such as http://collector:4318", strings.ToLower(signal))
		}
		t := Target{Signal: strings.ToLower(signal), Endpoint: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()}
		t.Err = sendEmptyExport(ctx, address)
		targets = append(targets, t)
	}
	return targets, nil
}

// findEndpoint returns the address of a signal: its own variable as it is, or the general one with the signal's path, or the
// default of the exporters.
func findEndpoint(signal string) string {
	if specific, given := lookup("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"); given {
		return specific
	}
	general, _ := lookup("OTEL_EXPORTER_OTLP_ENDPOINT")
	return strings.TrimSuffix(cmp.Or(general, "https://localhost:4318"), "/") + "/v1/" + strings.ToLower(signal)
}

// answeredStatus matches the status in the exporter's error about an answer; the error has no other form of it.
var answeredStatus = regexp.MustCompile(`^failed to send to \S+: (\d{3}) `)

// sendEmptyExport sends a request without spans to address, once. It returns an error without the text of the answer.
func sendEmptyExport(ctx context.Context, address string) error {
	client := otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(address), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	defer func() { _ = client.Stop(context.WithoutCancel(ctx)) }()
	err := client.UploadTraces(ctx, nil)
	if err == nil {
		return nil
	}
	if m := answeredStatus.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("it answers %s", m[1])
	}
	if !errors.As(err, new(*url.Error)) && ctx.Err() == nil { // the exporter's error for an answer that may be tried again
		return errors.New("it answers that it is busy")
	}
	return errors.New(egress.PublicMessage(err))
}
