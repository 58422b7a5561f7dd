#include "rule_list.h"

#include <stepscope/rules.h>

#include "report/json_text.h"

namespace stepscope {

std::string RulesJson() {
  JsonText json;
  json.Open('{');
  json.Field("version", 1);
  json.Key("rules");
  json.Open('[');
  for (const RuleText& rule : RuleTexts()) {
    json.Open('{');
    json.Field("id", rule.id);
    json.Field("question", rule.question);
    json.Field("applies_to", rule.applies);
    json.Field("needs", rule.needs);
    json.Field("reported_when", rule.detect);
    json.Field("not_reported_when", rule.avoid);
    json.Key("fix");
    json.Open('{');
    json.Field("cpp", rule.fix_cpp);
    json.Field("python", rule.fix_python);
    json.Close('}');
    json.Field("reference", rule.reference);
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
