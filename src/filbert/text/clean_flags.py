"""The names of the countries and regions that have a flag among the emojis (ISO 3166, in short)."""

from __future__ import annotations

_COUNTRIES = """
AC ascension island|AD andorra|AE united arab emirates|AF afghanistan|AG antigua and barbuda
AI anguilla|AL albania|AM armenia|AO angola|AQ antarctica|AR argentina|AS american samoa
AT austria|AU australia|AW aruba|AX aland islands|AZ azerbaijan|BA bosnia and herzegovina
BB barbados|BD bangladesh|BE belgium|BF burkina faso|BG bulgaria|BH bahrain|BI burundi|BJ benin
BL saint barthelemy|BM bermuda|BN brunei|BO bolivia|BQ caribbean netherlands|BR brazil|BS bahamas
BT bhutan|BV bouvet island|BW botswana|BY belarus|BZ belize|CA canada|CC cocos islands
CD congo kinshasa|CF central african republic|CG congo brazzaville|CH switzerland|CI ivory coast
CK cook islands|CL chile|CM cameroon|CN china|CO colombia|CP clipperton island|CR costa rica
CU cuba|CV cape verde|CW curacao|CX christmas island|CY cyprus|CZ czechia|DE germany
DG diego garcia|DJ djibouti|DK denmark|DM dominica|DO dominican republic|DZ algeria
EA ceuta and melilla|EC ecuador|EE estonia|EG egypt|EH western sahara|ER eritrea|ES spain
ET ethiopia|EU european union|FI finland|FJ fiji|FK falkland islands|FM micronesia
FO faroe islands|FR france|GA gabon|GB united kingdom|GD grenada|GE georgia|GF french guiana
GG guernsey|GH ghana|GI gibraltar|GL greenland|GM gambia|GN guinea|GP guadeloupe
GQ equatorial guinea|GR greece|GS south georgia|GT guatemala|GU guam|GW guinea bissau|GY guyana
HK hong kong|HM heard and mcdonald islands|HN honduras|HR croatia|HT haiti|HU hungary
IC canary islands|ID indonesia|IE ireland|IL israel|IM isle of man|IN india
IO british indian ocean territory|IQ iraq|IR iran|IS iceland|IT italy|JE jersey|JM jamaica
JO jordan|JP japan|KE kenya|KG kyrgyzstan|KH cambodia|KI kiribati|KM comoros
KN saint kitts and nevis|KP north korea|KR south korea|KW kuwait|KY cayman islands|KZ kazakhstan
LA laos|LB lebanon|LC saint lucia|LI liechtenstein|LK sri lanka|LR liberia|LS lesotho
LT lithuania|LU luxembourg|LV latvia|LY libya|MA morocco|MC monaco|MD moldova|ME montenegro
MF saint martin|MG madagascar|MH marshall islands|MK north macedonia|ML mali|MM myanmar
MN mongolia|MO macao|MP northern mariana islands|MQ martinique|MR mauritania|MS montserrat
MT malta|MU mauritius|MV maldives|MW malawi|MX mexico|MY malaysia|MZ mozambique|NA namibia
NC new caledonia|NE niger|NF norfolk island|NG nigeria|NI nicaragua|NL netherlands|NO norway
NP nepal|NR nauru|NU niue|NZ new zealand|OM oman|PA panama|PE peru|PF french polynesia
PG papua new guinea|PH philippines|PK pakistan|PL poland|PM saint pierre and miquelon
PN pitcairn islands|PR puerto rico|PS palestine|PT portugal|PW palau|PY paraguay|QA qatar
RE reunion|RO romania|RS serbia|RU russia|RW rwanda|SA saudi arabia|SB solomon islands
SC seychelles|SD sudan|SE sweden|SG singapore|SH saint helena|SI slovenia
SJ svalbard and jan mayen|SK slovakia|SL sierra leone|SM san marino|SN senegal|SO somalia
SR suriname|SS south sudan|ST sao tome and principe|SV el salvador|SX sint maarten|SY syria
SZ eswatini|TA tristan da cunha|TC turks and caicos islands|TD chad
TF french southern territories|TG togo|TH thailand|TJ tajikistan|TK tokelau|TL timor leste
TM turkmenistan|TN tunisia|TO tonga|TR turkey|TT trinidad and tobago|TV tuvalu|TW taiwan
TZ tanzania|UA ukraine|UG uganda|UM us outlying islands|UN united nations|US united states
UY uruguay|UZ uzbekistan|VA vatican city|VC saint vincent and the grenadines|VE venezuela
VG british virgin islands|VI us virgin islands|VN vietnam|VU vanuatu|WF wallis and futuna
WS samoa|XK kosovo|YE yemen|YT mayotte|ZA south africa|ZM zambia|ZW zimbabwe
"""

# By the two letters that a flag is made of.
COUNTRIES = {
    entry[:2]: entry[3:] for line in _COUNTRIES.split("\n") for entry in line.split("|") if entry
}
# By the tag letters that follow a black flag.
REGIONS = {"gbeng": "england", "gbsct": "scotland", "gbwls": "wales"}
