package amount

import "strings"

// currencyCodes are the alphabetic codes of money in ISO 4217, list one, without those of metals, bonds and tests. BGN and ANG,
// which it has lost in 2025 and 2026, are for invoices of the time before.
const currencyCodes = ` AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK 
 DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD 
 KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR 
 RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES 
 VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG ANG BGN `

// IsCurrency reports whether s is the alphabetic code of a currency (ISO 4217), such as USD.
func IsCurrency(s string) bool {
	return len(s) == 3 && !strings.ContainsAny(s, " \n") && strings.Contains(currencyCodes, " "+s+" ")
}

// minorUnits has the currencies whose smallest unit is not a hundredth (ISO 4217, list one).
var minorUnits = map[string]Money{
	"BIF": 1e9, "CLP": 1e9, "DJF": 1e9, "GNF": 1e9, "ISK": 1e9, "JPY": 1e9, "KMF": 1e9, "KRW": 1e9, "PYG": 1e9, "RWF": 1e9, "UGX": 1e9, "UYI": 1e9,
	"VND": 1e9, "VUV": 1e9, "XAF": 1e9, "XOF": 1e9, "XPF": 1e9,
	"BHD": 1e6, "IQD": 1e6, "JOD": 1e6, "KWD": 1e6, "LYD": 1e6, "OMR": 1e6, "TND": 1e6,
	"CLF": 1e5, "UYW": 1e5,
}

// MinorUnit returns the smallest amount that is paid in a currency: a cent of USD, a yen, a thousandth of KWD.
func MinorUnit(currency string) Money {
	if unit, ok := minorUnits[currency]; ok {
		return unit
	}
	return 1e7
}

// Round returns the multiple of unit that is nearest to m. Of two that are equally near it returns the larger one. A
// result that does not fit is rounded down.
func (m Money) Round(unit Money) Money {
	m = max(m, -maxSum) // the smallest int64 has no negative
	n := max(m, -m)
	down, rest := n-n%unit, 2*(n%unit)
	if (rest > unit || rest == unit && m > 0) && down <= maxSum-unit {
		down += unit
	}
	if m < 0 {
		return -down
	}
	return down
}
