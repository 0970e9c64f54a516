package server

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"

	"github.com/kelseyhightower/envconfig"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
	"stoa/billing/export"
	"stoa/billing/export/file"
	"stoa/billing/export/stripe"
	"stoa/billing/export/webhook"
)

// exportSettings configure the export of usage, from STOA_EXPORT_ and the field's name. The secrets of the webhook
// and of Stripe may also come from a file (readSecret).
type exportSettings struct {
	Folder         string            // "" = no export to files
	Format         file.Format       `default:"ndjson"`
	Webhook        string            // https URL, "" = none
	Stripe         map[string]string // Stripe event name by meter, as meter:event,...
	PrivateNetwork bool              `split_words:"true"` // the webhook may have a private address, and plain http
}

// Names of the secrets of exports.
const (
	WebhookSecretName = "STOA_EXPORT_WEBHOOK_SECRET"
	StripeKeyName     = "STOA_EXPORT_STRIPE_KEY"
)

// NewExporter returns the exporter of usage with a sink for each configured target. It returns an error for a setting
// that cannot work, such as a missing folder or secret, instead of exporting nothing. onDelivery may be nil.
func NewExporter(d runtime.Dependencies, onDelivery func(export string, err error)) (*export.Exporter, error) {
	s, err := loadExportSettings()
	if err != nil {
		return nil, err
	}
	sinks, err := s.newSinks(d)
	if err != nil {
		return nil, err
	}
	return d.Billing.Exports.NewExporter(sinks, onDelivery), nil
}

// loadExportSettings returns the settings of exports from the environment.
func loadExportSettings() (s exportSettings, err error) {
	if err := envconfig.Process("stoa_export", &s); err != nil {
		return s, envError(err)
	}
	return s, nil
}

// ExportTarget is where usage is exported to: a folder or an address.
type ExportTarget struct {
	Name        string
	Folder, URL string // one is ""
	// Private means that the address may be in a private network.
	Private bool
}

// ListExportTargets returns the targets of the export of usage, by name. Its errors are those with which a server does not
// start.
func (Settings) ListExportTargets() ([]ExportTarget, error) {
	s, err := loadExportSettings()
	if err != nil {
		return nil, err
	}
	// The sinks send nothing here; making them finds what is wrong.
	sinks, err := s.newSinks(runtime.Dependencies{Host: runtime.Host{PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true})}})
	if err != nil {
		return nil, err
	}
	known := map[string]ExportTarget{
		"file": {Folder: s.Folder}, "webhook": {URL: s.Webhook, Private: s.PrivateNetwork}, "stripe": {URL: "https://api.stripe.com"},
	}
	var targets []ExportTarget
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		target := known[name]
		target.Name = name
		targets = append(targets, target)
	}
	return targets, nil
}

// newSinks returns the sink of each target. Of d it uses the clients of outgoing requests.
func (s exportSettings) newSinks(d runtime.Dependencies) (map[string]export.Sink, error) {
	secret, err := readSecret(WebhookSecretName)
	if err != nil {
		return nil, err
	}
	key, err := readSecret(StripeKeyName)
	if err != nil {
		return nil, err
	}
	sinks := map[string]export.Sink{}
	if s.Folder != "" {
		if info, err := os.Stat(s.Folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("STOA_EXPORT_FOLDER: %s is no folder; make it first", s.Folder)
		}
		if s.Format != file.NDJSON && s.Format != file.CSV {
			return nil, fmt.Errorf("STOA_EXPORT_FORMAT must be %s or %s", file.NDJSON, file.CSV)
		}
		sinks["file"] = file.Sink{Folder: s.Folder, Format: s.Format}
	}
	// One of the two alone is a mistake that newWebhookSink reports.
	if s.Webhook != "" || secret != "" {
		if sinks["webhook"], err = s.newWebhookSink(d, secret); err != nil {
			return nil, err
		}
	}
	if len(s.Stripe) > 0 || key != "" {
		if sinks["stripe"], err = stripe.New(d.PublicEgress.HTTP(), key, "", s.Stripe); err != nil {
			return nil, fmt.Errorf("STOA_EXPORT_STRIPE and %s: %w", StripeKeyName, err)
		}
	}
	return sinks, nil
}

// newWebhookSink returns the sink of the webhook. Redirects are not followed: the signed usage must reach the
// configured address only.
func (s exportSettings) newWebhookSink(d runtime.Dependencies, text string) (export.Sink, error) {
	// Usage is signed but not encrypted, so that plain http is for private networks only.
	u, err := url.Parse(s.Webhook)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !s.PrivateNetwork) {
		return nil, errors.New("STOA_EXPORT_WEBHOOK must be an https address; http will do with STOA_EXPORT_PRIVATE_NETWORK=true")
	}
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", WebhookSecretName, err)
	}
	client := d.PublicEgress.HTTP()
	if s.PrivateNetwork {
		client = d.PrivateEgress.HTTP()
	}
	return webhook.Sink{URL: s.Webhook, Secret: secret, Client: egress.WithoutRedirects(client)}, nil
}
