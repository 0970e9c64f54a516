package billing

// RunFactsOf exports UsageRequest.runFacts.
var RunFactsOf = UsageRequest.runFacts
