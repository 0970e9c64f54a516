package main

import (
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/ext"
	"stoa/authz"
)

// configureCards sets h.cards, which build the cards of agents and sign them if --sign-cards is set. The signature (A2A specification,
// AgentCardSignature) covers the canonical JSON of the card, and names the URL below the public URL that serves the
// verification keys. The keys are derived from the master keys, so that all processes sign alike.
func (h *server) configureCards(publicURL string) error {
	h.cards = agentcard.Builder{GRPC: h.grpcCardOptions()}
	if !h.settings.signCards {
		return nil
	}
	signer, err := authz.NewCardSigner(h.keyring, publicURL+ext.CardKeysPath)
	if err != nil {
		return err
	}
	h.cardJWKS = signer.JWKS
	h.cards.Sign = func(card []byte) (agentcard.Signature, error) {
		// The signature covers the card without its signatures, in canonical JSON (A2A 1.0, 8.4.1; RFC 8785).
		payload, err := a2agrpc.CanonicalCard(card)
		if err != nil {
			return agentcard.Signature{}, err
		}
		protected, signature, err := signer.Sign(payload)
		return agentcard.Signature{Protected: protected, Signature: signature}, err
	}
	return nil
}
