package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/kelseyhightower/envconfig"

	"stoa/agentsvc/egress"
	"stoa/billing"
)

// exportSettings say where usage is exported to. Each stands in the environment as STOA_EXPORT_ and its name; the secrets of
// the webhook and of Stripe may also be in a file, as secrets are.
type exportSettings struct {
	Folder         string
	Format         billing.FileFormat `default:"ndjson"`
	Webhook        string
	Stripe         map[string]string // meter:event,...
	PrivateNetwork bool              `split_words:"true"` // the webhook may have an address of the inside
}

const (
	webhookSecretName = "STOA_EXPORT_WEBHOOK_SECRET"
	stripeKeyName     = "STOA_EXPORT_STRIPE_KEY"
)

// openExports brings up what exports usage, if anything does. What is set and cannot work is refused.
func (h *server) openExports() error {
	var s exportSettings
	if err := envconfig.Process("stoa_export", &s); err != nil {
		return envError(err)
	}
	secret, err := readSecret(webhookSecretName)
	if err != nil {
		return err
	}
	key, err := readSecret(stripeKeyName)
	if err != nil {
		return err
	}
	sinks := map[string]billing.Sink{}
	if s.Folder != "" {
		if info, err := os.Stat(s.Folder); err != nil || !info.IsDir() {
			return fmt.Errorf("STOA_EXPORT_FOLDER: %s is no folder; make it first", s.Folder)
		}
		if s.Format != billing.NDJSON && s.Format != billing.CSV {
			return fmt.Errorf("STOA_EXPORT_FORMAT must be %s or %s", billing.NDJSON, billing.CSV)
		}
		sinks["file"] = billing.FileSink{Folder: s.Folder, Format: s.Format}
	}
	if s.Webhook != "" || secret != "" {
		if sinks["webhook"], err = s.newWebhookSink(h, secret); err != nil {
			return err
		}
	}
	if len(s.Stripe) > 0 || key != "" {
		if sinks["stripe"], err = billing.NewStripeSink(h.deps.PublicEgress.HTTP(), key, "", s.Stripe); err != nil {
			return fmt.Errorf("STOA_EXPORT_STRIPE and %s: %w", stripeKeyName, err)
		}
	}
	h.exporter = h.deps.Billing.NewExporter(sinks)
	return nil
}

func (s exportSettings) newWebhookSink(h *server, text string) (billing.Sink, error) {
	u, err := url.Parse(s.Webhook)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !s.PrivateNetwork) {
		return nil, errors.New("STOA_EXPORT_WEBHOOK must be an https address; http will do with STOA_EXPORT_PRIVATE_NETWORK=true")
	}
	secret, err := billing.ParseWebhookSecret(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", webhookSecretName, err)
	}
	client := h.deps.PublicEgress.HTTP()
	if s.PrivateNetwork {
		client = h.deps.PrivateEgress.HTTP()
	}
	return billing.WebhookSink{URL: s.Webhook, Secret: secret, Client: egress.WithoutRedirects(client)}, nil
}

// runBilling looks after credits and exports until ctx ends.
func (h *server) runBilling(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- h.exporter.Run(ctx) }()
	return errors.Join(h.deps.Billing.RunBookkeeping(ctx), <-ended)
}
