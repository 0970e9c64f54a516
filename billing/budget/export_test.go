package budget

// RunFactsOf exports Request.runFacts.
var RunFactsOf = Request.runFacts
