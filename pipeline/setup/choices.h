// Recipe keys of the data plane with fixed choices, as enumerations.
#pragma once

#include "millrace/loader.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "recipe/choice.h"

namespace millrace::pipeline {

inline LoaderMode loader_mode_of(const Recipe& recipe) {
  return recipe::choice_of<LoaderMode>(recipe, "loader.mode",
                                       {{"normal", LoaderMode::normal},
                                        {"synthetic", LoaderMode::synthetic},
                                        {"cached", LoaderMode::cached}});
}

inline OnError on_error_of(const Recipe& recipe) {
  return recipe::choice_of<OnError>(
      recipe, "loader.on_error",
      {{"fail", OnError::fail}, {"skip", OnError::skip}, {"replace", OnError::replace}});
}

inline SamplerOptions::Kind sampler_kind_of(const Recipe& recipe) {
  using Kind = SamplerOptions::Kind;
  return recipe::choice_of<Kind>(recipe, "sampler.kind",
                                 {{"shuffle", Kind::shuffle},
                                  {"sequential", Kind::shuffle},
                                  {"weighted", Kind::weighted},
                                  {"balanced", Kind::balanced},
                                  {"repeat", Kind::repeat}});
}

inline BoxFormat box_format_of(const Recipe& recipe) {
  return recipe::choice_of<BoxFormat>(
      recipe, "targets.format",
      {{"xyxy", BoxFormat::xyxy}, {"xywh", BoxFormat::xywh}, {"cxcywh", BoxFormat::cxcywh}});
}

inline Depth depth_of(const Recipe& recipe) {
  return recipe::choice_of<Depth>(recipe, "decode.depth",
                                  {{"8", Depth::u8}, {"16", Depth::u16}, {"float", Depth::f32}});
}

inline Cache cache_of(const Recipe& recipe) {
  return recipe::choice_of<Cache>(recipe, "data.cache",
                                  {{"os", Cache::os}, {"ram", Cache::ram}, {"cold", Cache::cold}});
}

inline IndexUse index_use_of(const Recipe& recipe) {
  return recipe::choice_of<IndexUse>(
      recipe, "data.index",
      {{"auto", IndexUse::automatic}, {"require", IndexUse::require}, {"off", IndexUse::off}});
}

}  // namespace millrace::pipeline
