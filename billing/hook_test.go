package billing

// Grant is how tests make credits that are over already.
var Grant = (*Service).grant

// SettleDown is how tests need not wait until new budgets are worked out anew.
var SettleDown = (*Service).settleDown

// FactsOf is what a call leaves to be counted.
var FactsOf = Ask.facts
